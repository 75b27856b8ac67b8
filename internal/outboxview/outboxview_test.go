package outboxview

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// Tables are found through the search path and by schema, and missing tables are named.
func TestFind(t *testing.T) {
	pool := newPool(t)
	l, err := Find(t.Context(), pool, "")
	require.NoError(t, err)
	require.False(t, l.There())
	require.Contains(t, l.Problem(), "idem migrate up --outbox")
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	l, err = Find(t.Context(), pool, "")
	require.NoError(t, err)
	require.True(t, l.There())
	require.Empty(t, l.Problem())
	require.Positive(t, l.Version)
	named, err := Find(t.Context(), pool, l.Schema)
	require.NoError(t, err)
	require.Equal(t, l, named)
	_, err = pool.Exec(t.Context(), "DROP TABLE idem_outbox_relays")
	require.NoError(t, err)
	l, err = Find(t.Context(), pool, "")
	require.NoError(t, err)
	require.True(t, l.There())
	require.Equal(t, "idem_outbox_relays not there: idem migrate up --outbox", l.Problem())
	_, err = Ask(t.Context(), pool, "")
	require.ErrorContains(t, err, "shards of the relays")
}

// Missing tables are a fault although the store cannot be used now.
func TestUnfit(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no error":  {nil, false},
		"a fault":   {errors.New("indexes are not valid"), true},
		"no tables": {fmt.Errorf("check: %w", &dedup.SetupError{Problem: "no tables"}), true},
		"an outage": {fmt.Errorf("check: %w", dedup.ErrUnavailable), false},
		"cancelled": {fmt.Errorf("check: %w: %w", dedup.ErrUnavailable, context.Canceled), false},
	} {
		require.Equal(t, c.want, Unfit(c.err), name)
	}
}

// The backlog and the shards are read through the search path and by schema.
func TestAsk(t *testing.T) {
	pool := newPool(t)
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	box := pgoutbox.New(pool)
	s, err := Ask(t.Context(), pool, "")
	require.NoError(t, err)
	require.Len(t, s.Relays, 1)
	require.Equal(t, Share{Shards: s.Relays[0].Shards, Epochs: s.Relays[0].Epochs}, s.Relays[0], "nobody's")
	require.Zero(t, s.Waiting+s.Parked+s.Blocked)
	require.Zero(t, s.Oldest)
	entry := outbox.Entry{Topic: "orders", Key: "1", Type: "paid", ID: "a", Payload: []byte("{}")}
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return box.Add(t.Context(), tx, entry) }))
	held, err := box.Hold(t.Context(), "relay-1", time.Minute, true)
	require.NoError(t, err)
	_, err = box.Hold(t.Context(), "relay-2", time.Minute, true) // gets no shard
	require.NoError(t, err)
	l, err := Find(t.Context(), pool, "")
	require.NoError(t, err)
	for _, schema := range []string{"", l.Schema} {
		s, err = Ask(t.Context(), pool, schema)
		require.NoError(t, err)
		require.EqualValues(t, 1, s.Waiting)
		require.Positive(t, s.Oldest)
		require.Len(t, s.Relays, 2)
		require.Len(t, s.Relays[0].Shards, len(held))
		require.InDelta(t, 60, *s.Relays[0].LeaseLeft, 30)
		require.True(t, s.Relays[0].Alive)
		require.Equal(t, Share{Relay: "relay-2", Shards: []int{}, Epochs: []int64{}, Alive: true}, s.Relays[1])
	}
}

// Numbers are written as spans.
func TestWords(t *testing.T) {
	require.Equal(t, "1-3,7,9-10", Spans([]int{1, 2, 3, 7, 9, 10}))
	require.Equal(t, "none", Spans(nil))
	require.Equal(t, "3-5", Epochs([]int64{5, 3, 4}))
	require.Equal(t, "3", Epochs([]int64{3, 3}))
	require.Equal(t, "-", Epochs(nil))
	require.Equal(t, "99999", Counted(Limit-1))
	require.Equal(t, fmt.Sprintf("%d or more", Limit), Counted(Limit))
}
