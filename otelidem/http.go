package otelidem

// httpPart counts what HTTP handlers tell.
type httpPart struct{}

func (p *httpPart) init(*builder) {}

var httpMetrics []*Metric
