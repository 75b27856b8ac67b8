// Package decoded calls decoders of users, and keeps the decoded values of one delivery, so that
// type, ID, fingerprint and handler share one call.
package decoded

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/mark"
)

// ErrLookUp means that a decoder must ask another service, and that the context has ended. The
// event is read again with a context that lives, without a claim.
var ErrLookUp = errors.New("the decoder must look something up first")

// Error is an error of a decoder.
type Error struct {
	Decoder idemtype.Decoder
	Err     error
}

// Error returns the text of the inner error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the inner error.
func (e *Error) Unwrap() error { return e.Err }

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Known returns a context that has ended. Decoders then use only their own memory, such as cached
// schemas, and the error is otherwise [ErrLookUp]. m may be nil.
func Known(m *Memo) context.Context {
	if m == nil {
		return ended
	}
	return With(ended, m)
}

// Call decodes m. The value is a *T; for a pointer type T it points to a new T. The first try has a
// context that has ended. If that fails and ctx lives, a second try may take idemtype.ReadTimeout.
// The error is [ErrLookUp] if ctx has ended.
func Call[T any](ctx context.Context, d idemtype.Decoder, m *idemtype.Message) (*T, error) {
	data, into := target[T]()
	if d.Decode(ended, m, into) == nil {
		return data, nil
	}
	if ctx.Err() != nil {
		return nil, ErrLookUp
	}
	limited, cancel := context.WithTimeout(ctx, idemtype.ReadTimeout)
	defer cancel()
	data, into = target[T]()
	began := time.Now()
	err := d.Decode(limited, m, into)
	switch {
	case err == nil:
		From(ctx).answered(d, began)
		return data, nil
	case ctx.Err() != nil:
		return nil, ErrLookUp
	case mark.Label(err) == "" &&
		(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		err = mark.New(mark.Unavailable, 0, err)
	}
	return nil, &Error{Decoder: d, Err: err}
}

// target returns a new T and the pointer that a decoder fills.
func target[T any]() (data *T, into any) {
	data = new(T)
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Pointer {
		v := reflect.New(t.Elem())
		reflect.ValueOf(data).Elem().Set(v)
		return data, v.Interface()
	}
	return data, data
}

// Value returns the decoded value of m. With a memo in ctx, each decoder is called once for each
// type.
func Value[T any](ctx context.Context, d idemtype.Decoder, m *idemtype.Message) (*T, error) {
	memo := From(ctx)
	if memo == nil || !reflect.ValueOf(d).Comparable() {
		return Call[T](ctx, d, m)
	}
	k := key{d, reflect.TypeFor[T]()}
	for i := range memo.entries {
		if e := &memo.entries[i]; e.key == k && e.of == m {
			if e.err != nil {
				return nil, e.err
			}
			return e.value.(*T), nil
		}
	}
	data, err := Call[T](ctx, d, m)
	if !errors.Is(err, ErrLookUp) {
		memo.entries = append(memo.entries, entry{k, m, data, err})
	}
	return data, err
}

// Name returns the name of a decoder for logs.
func Name(d idemtype.Decoder) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("decoder %T", d)
}

// Ping reports whether the service of a decoder answers. A decoder without Ping counts as one that
// does.
func Ping(ctx context.Context, d idemtype.Decoder) bool {
	p, ok := d.(interface{ Ping(context.Context) error })
	return !ok || p.Ping(ctx) == nil
}
