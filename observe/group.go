package observe

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// ClaimGroupObserver gets the begin and the end of every claim group and provides its context.
//
// Begin and end are called once each, on one goroutine. BeginClaimGroup must return a context that
// is derived from ctx. Calls of the store and of handlers get that context. After a panic of an
// observer the state of the batch is undefined.
type ClaimGroupObserver interface {
	BeginClaimGroup(ctx context.Context, g *ClaimGroup) context.Context
	// EndClaimGroup gets the context that BeginClaimGroup returned.
	EndClaimGroup(ctx context.Context, g *ClaimGroup)
}

// Deliveries is a list of deliveries, without a copy of their data.
type Deliveries interface {
	// Len returns the number of deliveries, at least one.
	Len() int
	// Message returns the record of delivery i, as its producer wrote it.
	Message(i int) *idemtype.Message
	// Key returns the key of delivery i in the store.
	Key(i int) dedup.Key
}

// ClaimGroup is a list of deliveries that are claimed together. Their claims share a round trip,
// and if their handlers are transactional, a transaction. A delivery that is claimed elsewhere or
// that has failed is a group by itself, once for each attempt. Copies of one event within a batch
// are settled with the first of them and do not count.
//
// Do not keep a ClaimGroup after EndClaimGroup.
type ClaimGroup struct {
	Deliveries

	Group string
	// Transactional reports that the group shares one transaction with its effects.
	Transactional bool
	// Err is set at the end if the store gave no answer, the transaction was rolled back, or the
	// consumer stops. The error of a handler under a claim is that of its call, see [Call].
	Err error
}

// CallObserver gets the begin and the end of every call of a handler and provides its context.
//
// Both are called on the goroutine of the call, which can differ from that of the claim group. The
// call of an abandoned handler ends when the handler returns. A panic of an observer here is
// logged and otherwise ignored.
type CallObserver interface {
	BeginCall(ctx context.Context, c *Call) context.Context
	// EndCall gets the context that BeginCall returned.
	EndCall(ctx context.Context, c *Call)
}

// Events is the list of the events of a call.
type Events interface {
	Deliveries
	// Attempt returns the number of the run of event i, from 1.
	Attempt(i int) int
}

// Call is one call of a handler, with one event or, for a batch handler, several. Do not keep a
// Call after EndCall.
type Call struct {
	Events

	Group string
	// Type is the event type that the handler was registered for.
	Type string
	// Batch reports a handler that takes many events at once.
	Batch bool
	// Transactional reports that the effects are in the transaction of the claim group.
	Transactional bool
	Began         time.Time
	// Took is set at the end.
	Took time.Duration
	// Err is the result of the handler, set at the end. A panic is an [idemtype.PanicError].
	// [context.Canceled] usually means that the call was cancelled by a stop. Nil means success of
	// the handler; the claim group decides whether its effect stands.
	Err error
}
