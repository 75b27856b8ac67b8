package pgoutbox_test

import (
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// BenchmarkAdd counts the allocations of a transaction with Add, and of the same without.
func BenchmarkAdd(b *testing.B) {
	box, pool := newBox(b)
	for _, n := range []int{0, 1, 10} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			entries := make([]outbox.Entry, n)
			for i := range entries {
				entries[i] = outbox.Entry{
					Topic: "orders", Key: strconv.Itoa(i), Type: "order.paid",
					Payload: make([]byte, 250),
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
					return box.Add(b.Context(), tx, entries...)
				}))
			}
		})
	}
}
