package observe

import (
	"context"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// UnprotectedObserver gets every delivery with a handler that runs without the store. Neither a
// claim nor a record protects such a delivery against a second effect. The observer is called
// before the first attempt, also if the delivery comes again.
type UnprotectedObserver interface {
	ObserveUnprotected(context.Context, UnprotectedEvent)
}

// UnprotectedEvent is a delivery with a handler that runs without the store.
type UnprotectedEvent struct {
	Group   string
	Message *idemtype.Message
	// Key is the key of the event. The ID is empty for [NoEventID].
	Key    dedup.Key
	Reason UnprotectedReason
}

// UnprotectedReason is the reason why a handler runs without the store.
type UnprotectedReason uint8

const (
	// NoEventID means that the record has no event ID, and that the handler has RunNoID.
	NoEventID UnprotectedReason = iota
	// StoreUnavailable means that the store is down, and that the handler has WhenUnavailable.
	StoreUnavailable
)

// String returns the name of the reason, which may be used as a metric label.
func (r UnprotectedReason) String() string {
	switch r {
	case NoEventID:
		return "no_event_id"
	case StoreUnavailable:
		return "store_unavailable"
	}
	return "unknown"
}
