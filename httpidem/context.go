package httpidem

import (
	"context"
	"sync/atomic"

	"github.com/idem-go/idem/dedup"
)

// state is what a handler can ask for and say through its context.
type state struct {
	header     string // the key as the client sent it
	key        dedup.Key
	tx         any
	notApplied atomic.Bool
}

type stateKey struct{}

func stateOf(ctx context.Context) *state {
	s, _ := ctx.Value(stateKey{}).(*state)
	return s
}

// KeyFrom returns the idempotency key of the request that ctx belongs to, as the client sent it. Empty if it has none.
func KeyFrom(ctx context.Context) string {
	if s := stateOf(ctx); s != nil {
		return s.header
	}
	return ""
}

// StoreKey returns what the request is remembered by. ok is false if it has no key.
func StoreKey(ctx context.Context) (key dedup.Key, ok bool) {
	if s := stateOf(ctx); s != nil {
		return s.key, true
	}
	return dedup.Key{}, false
}

// ForwardKey is a key for an API that the handler calls: a UUID that is the same at every attempt of this request, and another one
// for every principal and purpose. Calls of one handler to one API need different purposes (rule 38). Empty if the request
// has no key.
func ForwardKey(ctx context.Context, purpose ...string) string {
	if s := stateOf(ctx); s != nil {
		return s.key.UUID(append([]string{s.key.Scope}, purpose...)...)
	}
	return ""
}

// NotApplied says that the handler has changed nothing outside, and will not: its answer is not kept, and the next request with the
// key runs it again. In a transaction it is rolled back. Call it from the handler, before it returns, and before an answer that is not held
// back (see [Config].StreamOnFlush and MaxBuffer) begins to leave.
func NotApplied(ctx context.Context) {
	if s := stateOf(ctx); s != nil {
		s.notApplied.Store(true)
	}
}

// TxFrom returns the transaction that the claim and the answer of this request are in. ok is false if the request has no key, or the
// middleware is not one of [NewTx] with this type of transaction. It is committed, or not, by the middleware.
func TxFrom[Tx any](ctx context.Context) (tx Tx, ok bool) {
	if s := stateOf(ctx); s != nil {
		tx, ok = s.tx.(Tx)
	}
	return tx, ok
}
