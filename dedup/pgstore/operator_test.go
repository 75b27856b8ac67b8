package pgstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// inLayouts runs a test once for each layout, with so many connections.
func inLayouts(t *testing.T, with int32, test func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool)) {
	t.Parallel()
	for layout, opts := range layouts {
		t.Run("layout"+layout, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, newTables(t, opts...), maxConns(with))
			test(t, pgstore.New(pool, opts...), pool)
		})
	}
}

// endAs claims r in a transaction and ends it with a plain completion that change has altered.
func endAs(t *testing.T, s *pgstore.Store, r dedup.Request, change func(*dedup.Completion)) {
	t.Helper()
	var a [1]dedup.Answer
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{r}, a[:], func(pgx.Tx) ([]dedup.Completion, error) {
		c := dedup.Completion{Claim: r.Held(dedup.Token{}, a[0]), Retention: retention}
		change(&c)
		return []dedup.Completion{c}, nil
	}))
	require.Equal(t, dedup.Fresh, a[0].Verdict)
}

func meets(t *testing.T, s *pgstore.Store, r dedup.Request, want dedup.Verdict) dedup.Answer {
	t.Helper()
	var a [1]dedup.Answer
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{r}, a[:],
		func(pgx.Tx) ([]dedup.Completion, error) { return nil, nil }))
	require.Equal(t, want, a[0].Verdict)
	return a[0]
}

func TestInspectTransactions(t *testing.T) {
	inLayouts(t, 4, func(t *testing.T, s *pgstore.Store, _ *pgxpool.Pool) {
		ctx := t.Context()
		endAs(t, s, request("done"), func(*dedup.Completion) {})
		endAs(t, s, request("dead"), func(c *dedup.Completion) { c.Dead = "poison" })
		endAs(t, s, request("moved"), func(c *dedup.Completion) { c.Retry = 3 })
		var a [1]dedup.Answer
		require.NoError(t, s.Claim(ctx, dedup.NewToken(), time.Minute, []dedup.Request{request("done")}, a[:]))
		records, err := s.Inspect(ctx, request("moved").Key, request("none").Key, request("done").Key, request("dead").Key)
		require.NoError(t, err)
		require.Len(t, records, 4)
		for i, want := range []dedup.Record{
			{Key: request("moved").Key, State: dedup.Waiting, Tx: true, Position: dedup.Position{Retry: 3}},
			{Key: request("done").Key, State: dedup.Finished, Tx: true},
			{Key: request("done").Key, State: dedup.Claimed},
			{Key: request("dead").Key, State: dedup.GivenUp, Tx: true, Reason: "poison"},
		} {
			r := records[i]
			require.WithinDuration(t, time.Now(), r.Created, time.Minute)
			require.WithinDuration(t, time.Now(), r.Changed, time.Minute)
			require.WithinDuration(t, time.Now().Add(retention), r.Expires, 3*time.Minute)
			want.Created, want.Changed, want.Expires, want.Lease = r.Created, r.Changed, r.Expires, r.Lease
			want.Fence, want.First = 1, r.First
			require.Equal(t, want, r)
			require.True(t, request("x").Origin.Same(r.First))
			require.Equal(t, want.State == dedup.Claimed, r.Lease > 0)
		}
		require.NoError(t, s.Discard(ctx, request("dead").Key, retention, "for good"))
		records, err = s.Inspect(ctx, request("dead").Key)
		require.NoError(t, err)
		require.Len(t, records, 1, "it is known in one way, and given up in that one")
		require.True(t, records[0].Discarded())
		require.ErrorIs(t, s.Forget(ctx, request("done").Key), dedup.ErrHeld)
		meets(t, s, request("done"), dedup.Done)
		require.NoError(t, s.Forget(ctx, request("moved").Key))
		meets(t, s, request("moved"), dedup.Fresh)
	})
}

// Rule 28: a question for unknown texts makes no numbers.
func TestLookingMakesNoNumbers_Rule28(t *testing.T) {
	t.Parallel()
	s, pool := newCompactStore(t)
	_, err := s.Inspect(t.Context(), request("e").Key)
	require.NoError(t, err)
	require.ErrorIs(t, s.Forget(t.Context(), request("e").Key), dedup.ErrNotFound)
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM idem_kinds").Scan(&n))
	require.Zero(t, n)
}

func TestDiscardInBothWays(t *testing.T) {
	inLayouts(t, 4, func(t *testing.T, s *pgstore.Store, _ *pgxpool.Pool) {
		ctx := t.Context()
		for range 2 {
			require.NoError(t, s.Discard(ctx, request("new").Key, retention, "a test"))
		}
		require.Equal(t, dedup.ReasonDiscarded+"a test", meets(t, s, request("new"), dedup.Dead).Reason)
		records, err := s.Inspect(ctx, request("new").Key)
		require.NoError(t, err)
		require.Len(t, records, 2)
		p, err := s.Reopen(ctx, request("new").Key)
		require.NoError(t, err)
		r := request("new")
		meets(t, s, r, dedup.Rescheduled)
		r.Position = p
		meets(t, s, r, dedup.Fresh)
		_, err = s.Reopen(ctx, r.Key)
		require.ErrorIs(t, err, dedup.ErrNotDead, "the other way has nothing to say")
		require.ErrorIs(t, s.Discard(ctx, r.Key, retention, "too late"), dedup.ErrSettled)
		meets(t, s, r, dedup.Done)
		endAs(t, s, request("moved"), func(c *dedup.Completion) { c.Retry = 1 })
		require.NoError(t, s.Discard(ctx, request("moved").Key, retention, "a test"))
		meets(t, s, request("moved"), dedup.Dead)
	})
}

// A transaction under way decides first: Discard waits for it, for some seconds, and then returns
// an error.
func TestDiscardWaitsForTransaction(t *testing.T) {
	inLayouts(t, 4, func(t *testing.T, s *pgstore.Store, _ *pgxpool.Pool) {
		ctx := t.Context()
		_, err := claimOne(ctx, s, request("e"), func(pgx.Tx) ([]dedup.Completion, error) {
			require.ErrorIs(t, s.Discard(ctx, request("e").Key, retention, "a test"), dedup.ErrUnavailable)
			return nil, nil
		})
		require.NoError(t, err)
		require.ErrorIs(t, s.Discard(ctx, request("e").Key, retention, "a test"), dedup.ErrSettled)
		records, err := s.Inspect(ctx, request("e").Key)
		require.NoError(t, err)
		require.Len(t, records, 1, "what waited has left nothing")
	})
}

func TestImportOfBothWays(t *testing.T) {
	inLayouts(t, 4, func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
		ctx := t.Context()
		old := time.Now().Add(-1000 * time.Hour)
		endAs(t, s, request("dead"), func(c *dedup.Completion) { c.Dead = "poison" })
		setHorizon(t, pool, request("e").Key.Scope, old.Add(time.Hour)) // it remembers no such event, and is told of them
		var events []dedup.Imported
		for i := range 2100 {
			r := request(fmt.Sprintf("e%04d", (i*7919)%2100))
			r.Origin.Time = old
			events = append(events, dedup.Imported{Key: r.Key, Origin: r.Origin, Retention: retention, Tx: i%3 > 0})
		}
		events = append(events, events[:50]...)
		events = append(events, dedup.Imported{Key: request("dead").Key, Retention: retention, Tx: true})
		for _, want := range []int{2100, 0} {
			n, err := s.Import(ctx, events)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		meets(t, s, request("dead"), dedup.Dead)
		for _, e := range events[:30] {
			r := dedup.Request{Key: e.Key, Retention: retention}
			a := dedup.Answer{}
			if e.Tx {
				a = meets(t, s, r, dedup.Done)
			} else {
				var got [1]dedup.Answer
				require.NoError(t, s.Claim(ctx, dedup.NewToken(), time.Minute, []dedup.Request{r}, got[:]))
				a = got[0]
				require.Equal(t, dedup.Done, a.Verdict)
			}
			require.True(t, a.First.Same(e.Origin))
		}
	})
}

// Rule 8: imported rows go when their retention is over, neither at once nor never, however old their events are.
func TestImportAndReaper_Rule8(t *testing.T) {
	inLayouts(t, 4, func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
		ctx := t.Context()
		for i, tx := range []bool{true, false} {
			_, err := s.Import(ctx, []dedup.Imported{
				{Key: request(fmt.Sprint("brief", i)).Key, Retention: time.Microsecond, Tx: tx,
					Origin: dedup.Origin{Topic: "t", Time: time.Now().Add(-9999 * time.Hour)}},
				{Key: request(fmt.Sprint("bare", i)).Key, Retention: time.Microsecond, Tx: tx},
				{Key: request(fmt.Sprint("long", i)).Key, Retention: retention, Tx: tx,
					Origin: dedup.Origin{Topic: "t", Time: time.Now().Add(-9999 * time.Hour)}},
			})
			require.NoError(t, err)
		}
		for _, table := range []string{"processed_events", "idempotency_keys"} { // as if it had been two minutes ago
			_, _ = pool.Exec(ctx, "UPDATE "+table+" SET created_at = created_at - interval '2 min', expires_at = expires_at - interval '2 min'")
		}
		_, _ = pool.Exec(ctx, "UPDATE processed_events_compact SET made = made - 120, expires = expires - 2")
		_, _ = pool.Exec(ctx, `UPDATE idempotency_keys_compact SET created_at = created_at - interval '2 min',
			expires_at = expires_at - interval '2 min'`)
		cfg := soonest()
		cfg.WallClock = []string{request("e").Key.Scope}
		for range 2 { // it moves the horizon, then deletes
			reap(t, s, cfg)
		}
		var left []string
		for i := range 2 {
			for _, name := range []string{"brief", "bare", "long"} {
				records, err := s.Inspect(ctx, request(fmt.Sprint(name, i)).Key)
				require.NoError(t, err)
				for _, r := range records {
					left = append(left, r.Key.ID)
				}
			}
		}
		require.Equal(t, []string{"long0", "long1"}, left)
	})
}

func TestListCompact(t *testing.T) {
	t.Parallel()
	s, _ := newCompactStore(t)
	ctx := t.Context()
	ids := []string{"0190f3b4-5c2a-7abc-8def-0123456789ab", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "order-1", "sha256:15328d3c29643c2e"}
	for i, id := range ids {
		endAs(t, s, request(id), func(c *dedup.Completion) {
			if i%2 == 1 {
				c.Dead = "poison"
			}
		})
	}
	list := func(f dedup.Filter, limit int) (shown []string) {
		require.NoError(t, s.List(ctx, f, limit, func(r dedup.Record) bool {
			require.True(t, r.Tx)
			require.Equal(t, request("x").Key.Type, r.Key.Type)
			shown = append(shown, r.Key.ID)
			return true
		}))
		slices.Sort(shown)
		return shown
	}
	shown := list(dedup.Filter{}, 0)
	require.Len(t, shown, 4)
	require.Equal(t, []string{ids[0], ids[1]}, shown[:2])
	for _, id := range shown[2:] {
		require.Regexp(t, "^sha256:[0-9a-f]{32}$", id, "not an ID, and not left out")
	}
	require.Len(t, list(dedup.Filter{States: []dedup.State{dedup.GivenUp}}, 0), 2)
	require.Len(t, list(dedup.Filter{Type: request("x").Key.Type}, 3), 3)
	require.Empty(t, list(dedup.Filter{Stuck: true}, 0))
	for _, id := range ids {
		found, err := s.Find(ctx, "", id)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, request(id).Key, found[0].Key)
	}
}

// A list is read page by page, and may be left at any time.
func TestListPages(t *testing.T) {
	inLayouts(t, 4, func(t *testing.T, s *pgstore.Store, _ *pgxpool.Pool) {
		ctx := t.Context()
		events := make([]dedup.Imported, 1234)
		for i := range events {
			id := fmt.Sprintf("0190f3b4-5c2a-7abc-8def-%012d", i)
			events[i] = dedup.Imported{Key: request(id).Key, Retention: retention, Tx: i%2 == 0}
		}
		n, err := s.Import(ctx, events)
		require.NoError(t, err)
		require.Equal(t, len(events), n)
		for _, leave := range []int{1, 500, 501, 5000} {
			seen := make(map[string]bool)
			var last time.Time
			require.NoError(t, s.List(ctx, dedup.Filter{}, 0, func(r dedup.Record) bool {
				require.False(t, r.Changed.Before(last), "least recently changed first")
				seen[r.Key.ID], last = true, r.Changed
				return len(seen) < leave
			}))
			require.Len(t, seen, min(leave, len(events)))
		}
		ended, cancel := context.WithCancel(ctx)
		defer cancel()
		n = 0
		err = s.List(ended, dedup.Filter{}, 0, func(dedup.Record) bool { n++; cancel(); return true })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 500, n, "what came is not repeated")
	})
}

// Find asks the index of the key once for each kind, at any size of the tables.
func TestFindReadsNoTable(t *testing.T) {
	inLayouts(t, 1, func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
		ctx := t.Context()
		var events []dedup.Imported
		for i := range 20_000 {
			k := dedup.Key{Tenant: fmt.Sprint("t", i%5), Scope: fmt.Sprint("s", i%2), Type: "e", ID: fmt.Sprint("id", i/10)}
			events = append(events, dedup.Imported{Key: k, Retention: retention, Tx: true})
		}
		n, err := s.Import(ctx, events)
		require.NoError(t, err)
		require.Equal(t, 20_000, n)
		before := tuplesRead(t, pool)
		found, err := s.Find(ctx, "", "id77")
		require.NoError(t, err)
		require.Len(t, found, 10)
		require.True(t, slices.IsSortedFunc(found, func(a, b dedup.Record) int { return a.Key.Compare(b.Key) }))
		found, err = s.Find(ctx, "s1", "id77")
		require.NoError(t, err)
		require.Len(t, found, 5)
		require.Less(t, tuplesRead(t, pool)-before, int64(200), "rows read")
	})
}

// tuplesRead is how many rows of the store the one session of pool has read so far.
func tuplesRead(t *testing.T, pool *pgxpool.Pool) (n int64) {
	t.Helper()
	_, err := pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
	require.NoError(t, err)
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)
		FROM pg_stat_user_tables WHERE schemaname = current_schema()
		AND relname LIKE ANY ('{processed_events%,idempotency_keys%}')`).Scan(&n))
	return n
}

// Notes of copies with another content share a table with starts. Neither hides the other, and
// starts of another record of a done event leave the notes.
func TestConflictsAndStarts(t *testing.T) {
	inLayouts(t, 4, func(t *testing.T, s *pgstore.Store, _ *pgxpool.Pool) {
		ctx, e := t.Context(), request("e")
		at := func(offset int64) dedup.Origin { return dedup.Origin{Topic: "orders", Partition: 1, Offset: offset} }
		starts := func(o dedup.Origin) uint32 {
			n, err := s.CountStart(ctx, e.Key, o)
			require.NoError(t, err)
			return n
		}
		require.NoError(t, s.NoteConflict(ctx, e.Key, at(1)))
		require.EqualValues(t, 1, starts(at(2)))
		require.NoError(t, s.NoteConflict(ctx, e.Key, at(2)))
		require.EqualValues(t, 2, starts(at(2)))
		endAs(t, s, e, func(*dedup.Completion) {})
		require.Zero(t, starts(at(3)))
		noted, err := s.Conflicts(ctx, e.Key, 10)
		require.NoError(t, err)
		require.Equal(t, []dedup.Origin{at(1)}, noted)
	})
}
