package otelidem

// doPart counts calls of guards.
type doPart struct{}

func (p *doPart) init(*builder) {}

var doMetrics []*Metric
