package engine

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// notifyUnprotected reports a delivery with a handler that runs without the store.
func (r *reporter) notifyUnprotected(
	ctx context.Context, t *task, why observe.UnprotectedReason,
) {
	if why == observe.NoEventID {
		r.notifyNoID(ctx, t)
	}
	for _, o := range r.obs.Unprotected {
		o.ObserveUnprotected(ctx, observe.UnprotectedEvent{
			Group: r.group, Message: t.message, Key: t.request.Key, Reason: why,
		})
	}
}

// notifyNoID logs a record without an ID, at most once a minute for each handler.
func (r *reporter) notifyNoID(ctx context.Context, t *task) {
	leftOut, ok := t.route.noIDs.admit(time.Now())
	if !ok {
		return
	}
	text := "record has no event ID, skipping it"
	if t.noID == idemtype.RunNoID {
		text = "record has no event ID, its handler runs without protection against duplicates"
	}
	attrs := append(messageAttrs(t.message, dedup.Key{}), "type", t.route.Type)
	if leftOut > 0 {
		attrs = append(attrs, "not_logged", leftOut)
	}
	r.log.WarnContext(ctx, text, attrs...)
}
