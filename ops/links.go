package ops

import (
	"github.com/idem-go/idem/dedup"
)

// This file has the links of templates, relative to all pages.

// EventLink leads to the look-up of a dead letter's event.
func (r deadLetterRow) EventLink() string {
	return eventLink(dedup.Key{Tenant: r.Tenant, Type: r.Type, ID: r.ID})
}

// Link leads to the dead letter.
func (r deadLetterRow) Link() string { return deadLetterLink(r.deadLetterPlace) }

// EventLink leads to the look-up of the event.
func (c runningCall) EventLink() string { return eventLink(c.Key) }

// HeadLink leads to the look-up of the first event of a queue.
func (p *deferredView) HeadLink(e *dedup.Deferred) string { return eventLink(e.Key) }

// KeyText is the Kafka key of a queue.
func (q deferredQueue) KeyText() string { return queueName(q.Name) }

// stuckRecord is a record with the link to the event.
type stuckRecord struct{ dedup.Record }

// Link leads to the look-up of the event.
func (r stuckRecord) Link() string { return eventLink(r.Key) }
