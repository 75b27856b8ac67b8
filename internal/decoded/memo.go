package decoded

import (
	"context"
	"reflect"
	"time"

	"github.com/idem-go/idem/idemtype"
)

// Memo keeps the decoded values of one delivery. One goroutine uses a Memo at a time.
type Memo struct {
	Began time.Time // before the first call of a decoder
	// Answered, if not nil, is called when a decoder has answered a call with a living context.
	// began is the start of that call.
	Answered func(d idemtype.Decoder, began time.Time)

	entries []entry
}

// key names a result: decoders are compared, so Value uses comparable ones only.
type key struct {
	decoder idemtype.Decoder
	into    reflect.Type
}

type entry struct {
	key
	of    *idemtype.Message
	value any // a *T
	err   error
}

type memoKey struct{}

// With returns ctx with a memo.
func With(ctx context.Context, m *Memo) context.Context {
	return context.WithValue(ctx, memoKey{}, m)
}

// From returns the memo of ctx, or nil.
func From(ctx context.Context) *Memo {
	m, _ := ctx.Value(memoKey{}).(*Memo)
	return m
}

func (m *Memo) answered(d idemtype.Decoder, began time.Time) {
	if m != nil && m.Answered != nil {
		m.Answered(d, began)
	}
}
