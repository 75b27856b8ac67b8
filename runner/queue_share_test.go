package runner

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestQueueShare(t *testing.T) {
	for name, c := range map[string]struct{ total, partitions, want int }{
		"no partition":        {32 << 20, 0, 32 << 20},
		"one":                 {32 << 20, 1, 32 << 20},
		"four":                {32 << 20, 4, 8 << 20},
		"a hundred":           {32 << 20, 100, 335544},
		"never below the min": {1 << 20, 100, 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, queueShare(c.total, c.partitions))
		})
	}
}
