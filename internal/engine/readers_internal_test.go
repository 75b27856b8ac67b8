package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// byValue is a decoder and a store by value. Its type is comparable, the value need not be.
type byValue struct {
	dedup.Store
	name  string
	inner any
}

func (byValue) Decode(context.Context, *idemtype.Message, any) error { return nil }
func (v byValue) String() string                                     { return v.name }

// Decoders that cannot be compared share a health by name.
func TestReaders_DecoderThatCannotBeCompared(t *testing.T) {
	var r readers
	bad := r.of(byValue{name: "a", inner: func() {}}, nil)
	require.Same(t, bad, r.of(byValue{name: "a", inner: []int{1}}, nil))
	require.NotSame(t, bad, r.of(byValue{name: "b", inner: func() {}}, nil))
	good := r.of(byValue{name: "a", inner: 1}, nil)
	require.Same(t, good, r.of(byValue{name: "a", inner: 1}, nil))
	require.NotSame(t, good, r.of(byValue{name: "a", inner: 2}, nil))
	require.NotSame(t, good, bad)
}

// A store that cannot be compared is a mistake of the configuration.
func TestBind_StoreThatCannotBeCompared(t *testing.T) {
	p := &Processor{}
	for range 2 {
		err := p.bind(&bound{Handler: &Handler{Settings: Settings{Store: byValue{inner: func() {}}}}})
		require.ErrorContains(t, err, "is not comparable: pass a pointer")
	}
}
