package dedup

import "context"

// parentKey is the context key of the parent.
type parentKey struct{}

// parentContext holds the key itself, which saves an allocation per event.
type parentContext struct {
	context.Context //nolint:containedctx // it is one
	key             Key
}

func (c *parentContext) Value(key any) any {
	if _, ok := key.(parentKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// WithParent returns a context that carries the key that is being handled. Events that a handler
// emits derive their IDs from it, so that every run emits the same IDs. The zero key means that
// several events are handled at once, as in a batch: then the emitting code names the parent.
//
// Handlers of events, of HTTP requests with a key, and the functions of [Do] and [DoTx] get such a
// context. Code that calls [EnterTx] or [Guard.Enter] makes its own.
func WithParent(ctx context.Context, key Key) context.Context {
	return &parentContext{Context: ctx, key: key}
}

// ParentFrom returns the key of the innermost [WithParent]. ok is false if ctx has no such key.
// The key is zero if several events are handled at once.
func ParentFrom(ctx context.Context) (key Key, ok bool) {
	c, ok := ctx.Value(parentKey{}).(*parentContext)
	if !ok {
		return Key{}, false
	}
	return c.key, true
}
