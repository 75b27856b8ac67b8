package dedup

import "context"

// parentKey is where the context has the parent.
type parentKey struct{}

// WithParent returns a context that says what is being handled: key. Whatever runs functions for keys gives it to them, so that what
// they emit can be named after its parent: the same names at every run, however often it is run (rule 23). The zero key says that
// several are handled at once, as in a batch: then whoever emits must say which one it is.
func WithParent(ctx context.Context, key Key) context.Context {
	return context.WithValue(ctx, parentKey{}, key)
}

// ParentFrom returns the key that is being handled. ok is false if ctx says nothing of it: what is emitted then has no parent. The
// key is zero if there are several.
func ParentFrom(ctx context.Context) (key Key, ok bool) {
	key, ok = ctx.Value(parentKey{}).(Key)
	return key, ok
}
