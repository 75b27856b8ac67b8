package pgstore_test

import (
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// An event that is claimed in a transaction is remembered for its retention from then on, with any
// time of the event (rule 8). That time may be old after a rewind, and lie ahead if the clock of
// the producer is wrong.
func TestExpiryOfTransactions_Rule8(t *testing.T) {
	inLayouts(t, 4, func(t *testing.T, s *pgstore.Store, _ *pgxpool.Pool) {
		began := time.Now()
		var keys []dedup.Key
		for name, age := range map[string]time.Duration{"old": 1000 * time.Hour, "ahead": -1000 * time.Hour} {
			of := func(id string) dedup.Request {
				r := request(name + " " + id)
				r.Origin.Time, r.AnyAge = began.Add(-age), true
				keys = append(keys, r.Key)
				return r
			}
			endAs(t, s, of("done"), func(*dedup.Completion) {})
			endAs(t, s, of("dead"), func(c *dedup.Completion) { c.Dead = "poison" })
			moved := of("moved")
			endAs(t, s, moved, func(c *dedup.Completion) { c.Retry = 3 })
			again := of("granted again")
			endAs(t, s, again, func(c *dedup.Completion) { c.Retry = 3 })
			again.Position.Retry = 3
			meets(t, s, again, dedup.Fresh)
		}
		records, err := s.Inspect(t.Context(), keys...)
		require.NoError(t, err)
		require.Len(t, records, len(keys))
		for _, r := range records {
			require.True(t, r.Tx)
			// The compact layout counts in minutes, and two clocks may differ.
			require.WithinRange(t, r.Expires, began.Add(retention-time.Minute), time.Now().Add(retention+2*time.Minute), r.Key.ID)
		}
	})
}
