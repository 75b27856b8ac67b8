package pgstore_test

import (
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// progressRow is a row of idem_progress, its time as an age by the server's clock.
type progressRow struct {
	Topic     string
	Partition int32
	Next      int64
	Age       *float64 // seconds
}

func progressOf(t testing.TB, pool *pgxpool.Pool, scope string) []progressRow {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT topic, partition, next_offset,
		extract(epoch FROM clock_timestamp() - consumed_until)::float8
		FROM idem_progress WHERE scope = $1 ORDER BY topic, partition`, scope)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[progressRow])
	require.NoError(t, err)
	return all
}

func record(t testing.TB, s *pgstore.Store, scope string, progress ...dedup.Progress) {
	t.Helper()
	require.NoError(t, s.RecordProgress(t.Context(), scope, progress))
}

func ago(d time.Duration) time.Time { return time.Now().Add(-d) }

// TestProgress_Rule8: times are the broker's, the present is the server's, and no clock of a producer moves it.
func TestProgress_Rule8(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t, inMode(mode))
			record(t, s, "g")
			require.Empty(t, progressOf(t, pool, "g"))
			record(t, s, "g",
				dedup.Progress{Topic: "b", Partition: 0, Next: 1, Time: ago(time.Hour)},
				dedup.Progress{Topic: "a", Partition: 2, Next: 5, CaughtUp: true},
				dedup.Progress{Topic: "a", Partition: 1, Next: 4, Time: ago(-24 * time.Hour)}, // a producer's clock is wrong
				dedup.Progress{Topic: "a", Partition: 0, Next: 3},                             // not known
				dedup.Progress{Topic: "b", Partition: 0, Next: 2, Time: ago(2 * time.Hour)},   // the last word counts
				dedup.Progress{Topic: "c", Next: 7, Time: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)})
			record(t, s, "other", dedup.Progress{Topic: "a", Partition: 1, Next: 99})
			rows := progressOf(t, pool, "g")
			require.Len(t, rows, 5)
			const slack = 20
			require.Equal(t, progressRow{"a", 0, 3, nil}, rows[0])
			require.InDelta(t, 60, *rows[1].Age, slack, "capped")
			require.GreaterOrEqual(t, *rows[1].Age, 60.0)
			require.InDelta(t, 60, *rows[2].Age, slack, "the present, one minute back")
			require.GreaterOrEqual(t, *rows[2].Age, 60.0)
			require.EqualValues(t, 2, rows[3].Next)
			require.InDelta(t, 7200, *rows[3].Age, slack)
			require.Nil(t, rows[4].Age)

			// A progress without a time leaves the row, unless the partition went back: then the
			// time is not known.
			record(t, s, "g", dedup.Progress{Topic: "a", Partition: 2, Next: 6}, dedup.Progress{Topic: "b", Next: 1})
			// A progress with a time replaces the row, also by an earlier one.
			record(t, s, "g", dedup.Progress{Topic: "a", Partition: 1, Next: 2, Time: ago(72 * time.Hour)})
			rows = progressOf(t, pool, "g")
			require.InDelta(t, 72*3600, *rows[1].Age, slack)
			require.EqualValues(t, 2, rows[1].Next)
			require.InDelta(t, 60, *rows[2].Age, slack)
			require.EqualValues(t, 6, rows[2].Next)
			require.Nil(t, rows[3].Age)

			known, err := s.Progress(t.Context(), "g", "a", "nothing")
			require.NoError(t, err)
			require.NotEmpty(t, known)
			for _, p := range known {
				require.Equal(t, "a", p.Topic)
				require.Positive(t, p.Next)
			}
			require.NoError(t, s.ForgetProgress(t.Context(), "g", "a"))
			require.Len(t, progressOf(t, pool, "g"), 2)
			require.Len(t, progressOf(t, pool, "other"), 1)
		})
	}
}

func TestProgress_Down(t *testing.T) {
	s := downStore(t).(*pgstore.Store)
	require.ErrorIs(t, s.RecordProgress(t.Context(), "g", []dedup.Progress{{Topic: "t"}}), dedup.ErrUnavailable)
	require.ErrorIs(t, s.Register(t.Context(), dedup.Registration{Scope: "g"}), dedup.ErrUnavailable)
	_, err := pgstore.NewReaper(s, pgstore.ReaperConfig{}).RunOnce(t.Context())
	require.ErrorIs(t, err, dedup.ErrUnavailable)
}
