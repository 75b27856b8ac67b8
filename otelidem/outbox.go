package otelidem

// outboxPart counts what outboxes and relays tell.
type outboxPart struct{}

func (p *outboxPart) init(*builder) {}

var outboxMetrics []*Metric
