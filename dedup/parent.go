package dedup

import "context"

// parentKey is what a context is asked for its parent with.
type parentKey struct{}

// parentContext has the key in itself: one allocation for every event that is handled, instead of two.
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

// WithParent returns a context that says what is being handled: key. Whatever runs functions for keys gives it to them, so that what
// they emit can be named after its parent: the same names at every run, however often it is run (rule 23). The zero key says that
// several are handled at once, as in a batch: then whoever emits must say which one it is.
//
// The handlers of events have it, those of HTTP requests with a key, and the functions of [Do] and [DoTx], whatever the version of
// their result. Code that enters a key by itself, with [EnterTx] or [Guard].Enter, says it by itself.
func WithParent(ctx context.Context, key Key) context.Context {
	return &parentContext{Context: ctx, key: key}
}

// ParentFrom returns the key that is being handled: that of the innermost [WithParent]. ok is false if ctx says nothing of it: what is
// emitted then has no parent. The key is zero if there are several.
func ParentFrom(ctx context.Context) (key Key, ok bool) {
	c, ok := ctx.Value(parentKey{}).(*parentContext)
	if !ok {
		return Key{}, false
	}
	return c.key, true
}
