package httpidem

import (
	"context"
	"sync/atomic"

	"github.com/idem-go/idem/dedup"
)

// state is the part of a request that its handler uses through the context.
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

// KeyFrom returns the idempotency key of the request that ctx belongs to, as the client sent it.
// Empty for a request without a key.
func KeyFrom(ctx context.Context) string {
	if s := stateOf(ctx); s != nil {
		return s.header
	}
	return ""
}

// StoreKey returns the key of the request in the store. ok is false if the request has no key.
func StoreKey(ctx context.Context) (key dedup.Key, ok bool) {
	if s := stateOf(ctx); s != nil {
		return s.key, true
	}
	return dedup.Key{}, false
}

// ForwardKey returns a key for an API that the handler calls. The key is a UUID: the same in
// every attempt of this request, and different for every principal and purpose. Use different
// purposes for several calls of one API. Empty if the request has no key.
func ForwardKey(ctx context.Context, purpose ...string) string {
	if s := stateOf(ctx); s != nil {
		return s.key.UUID(append([]string{s.key.Scope}, purpose...)...)
	}
	return ""
}

// NotApplied declares that the handler has made no change outside, and will make no change. The
// answer is not stored, and the next request with the key runs the handler again. A transaction
// is rolled back. Call NotApplied in the handler. For an answer that is not held back (see
// [Config].StreamOnFlush and MaxBuffer), call NotApplied before the first byte is sent.
func NotApplied(ctx context.Context) {
	if s := stateOf(ctx); s != nil {
		s.notApplied.Store(true)
	}
}

// TxFrom returns the transaction of the claim and the answer of this request. It returns false if
// the request has no key, or if [NewTx] with this type did not make the middleware. The middleware
// commits the transaction or rolls it back.
func TxFrom[Tx any](ctx context.Context) (tx Tx, ok bool) {
	if s := stateOf(ctx); s != nil {
		tx, ok = s.tx.(Tx)
	}
	return tx, ok
}
