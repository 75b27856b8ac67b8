package schemaregistry

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBounded(t *testing.T) {
	b := newBounded[int, int](3)
	for i := range 10 {
		b.put(i, i)
		b.put(i, i+100)
		require.LessOrEqual(t, b.size(), 3)
		v, ok := b.get(i)
		require.True(t, ok)
		require.Equal(t, i+100, v)
		_, ok = b.get(i - 3)
		require.False(t, ok)
		if i > 1 {
			_, ok = b.get(i - 2)
			require.True(t, ok)
		}
	}
}
