package consumer

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestQueueShare(t *testing.T) {
	for name, c := range map[string]struct {
		total  int
		claims map[string][]int32
		want   int
	}{
		"no partition":        {32 << 20, nil, 32 << 20},
		"one":                 {32 << 20, map[string][]int32{"a": {3}}, 32 << 20},
		"two topics":          {32 << 20, map[string][]int32{"a": {0, 1, 2}, "b": {7}}, 8 << 20},
		"a hundred":           {32 << 20, map[string][]int32{"a": make([]int32, 100)}, 335544},
		"never below the min": {1 << 20, map[string][]int32{"a": make([]int32, 100)}, 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, queueShare(c.total, c.claims))
		})
	}
}
