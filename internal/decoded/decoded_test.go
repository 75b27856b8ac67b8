package decoded_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/decoded"
)

// wrapper is a decoder by value. Its type is comparable, the value need not be.
type wrapper struct{ inner any }

func (w wrapper) Decode(_ context.Context, _ *idemtype.Message, into any) error {
	*into.(*int)++
	if calls, ok := w.inner.(*int); ok {
		*calls++
	}
	return nil
}

// A decoder that cannot be compared is called each time. Its type alone does not tell.
func TestValue_DecoderThatCannotBeCompared(t *testing.T) {
	m := &idemtype.Message{}
	calls := 0
	for name, c := range map[string]struct {
		inner any
		kept  bool
	}{
		"pointer": {&calls, true}, "nil": {nil, true}, "function": {func() {}, false}, "slice": {[]int{1}, false},
		"in a struct": {struct{ f any }{func() {}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := decoded.With(t.Context(), &decoded.Memo{})
			first, err := decoded.Value[int](ctx, wrapper{c.inner}, m)
			require.NoError(t, err)
			again, err := decoded.Value[int](ctx, wrapper{c.inner}, m)
			require.NoError(t, err)
			require.Equal(t, c.kept, first == again)
		})
	}
	require.Equal(t, 1, calls)
}
