package reaptest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/stretchr/testify/require"
)

const countEvents = "SELECT count(*) FROM processed_events"

// batches: a transaction deletes at most one batch. A reaper that is killed between two batches has
// deleted the first one. The next reaper goes on.
func batches(t *testing.T, site Site) {
	s := site.store(t)
	site.many(t, 70, old{scope: "g", made: 3 * day, expired: 2 * day, notKey: true})
	record(t, s, "g", caughtUp())
	reap(t, s, soonest())
	cfg := soonest()
	cfg.Batch, cfg.Pause = 20, time.Hour
	ctx, kill := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := sqlstore.NewReaper(s, cfg).RunOnce(ctx)
		done <- err
	}()
	require.Eventually(t, func() bool { return site.count(t, countEvents) < 70 }, 30*time.Second,
		time.Millisecond)
	require.Equal(t, 50, site.count(t, countEvents))
	kill()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Equal(t, 50, site.count(t, countEvents))
	cfg.Pause = -1
	require.EqualValues(t, 50, reap(t, s, cfg).Events)
}

// sameExpiry: rows with one expiry are all deleted, also if they are more than a batch.
func sameExpiry(t *testing.T, site Site) {
	s := site.store(t)
	site.many(t, 30, old{scope: "g", made: 3 * day, expired: 2 * day})
	for _, table := range []string{"processed_events", "idempotency_keys"} {
		site.exec(t, "UPDATE "+table+" SET expires_at = ¿", site.Dialect().Time(ago(2*day)))
	}
	record(t, s, "g", caughtUp())
	cfg := soonest()
	cfg.Batch = 7
	reap(t, s, cfg)
	var told []int64
	cfg.Deleted = func(rows int64) { told = append(told, rows) }
	result := reap(t, s, cfg)
	require.Equal(t, []int64{30, 30}, []int64{result.Events, result.Claims})
	require.Equal(t, []int64{7, 7, 7, 7, 2, 7, 7, 7, 7, 2}, told)
}

// locked: a reaper does not wait for a row that another transaction holds (P-08). A batch of held
// rows does not stop the reaper.
func locked(t *testing.T, site Site) {
	if site.Dialect().OneWriter {
		t.Skip("the database has one writer, so no row is locked while the reaper deletes")
	}
	s := site.store(t)
	site.many(t, 50, old{scope: "g", made: 3 * day, expired: 2 * day, notKey: true})
	site.exec(t, "UPDATE processed_events SET expires_at = ¿ WHERE event_id IN ('0', '1')",
		site.Dialect().Time(ago(2*day+time.Hour)))
	record(t, s, "g", caughtUp())
	reap(t, s, soonest())
	tx, err := site.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "UPDATE processed_events SET fence = fence + 1 "+
		"WHERE tenant = '' AND scope = 'g' AND event_type = 'x' AND event_id IN ('0', '1', '47')")
	require.NoError(t, err)
	cfg := soonest()
	cfg.Batch = 2
	began := time.Now()
	require.EqualValues(t, 47, reap(t, s, cfg).Events)
	require.Less(t, time.Since(began), 10*time.Second)
	require.Equal(t, []string{"event/0", "event/1", "event/47"}, site.left(t))
	require.NoError(t, tx.Commit())
	require.EqualValues(t, 3, reap(t, s, cfg).Events)
}

// lockedLive: a reaper does not touch live rows, so it does not wait for one that another
// transaction holds. Nearly all rows have expired, so a scan of the table seems cheap.
func lockedLive(t *testing.T, site Site) {
	if site.Dialect().OneWriter {
		t.Skip("the database has one writer, so no row is locked while the reaper deletes")
	}
	const n, live = 500, 20
	s := site.store(t)
	for _, notEvent := range []bool{false, true} {
		site.many(t, n, old{scope: "g", made: 3 * day, expired: 2 * day, notEvent: notEvent,
			notKey: !notEvent})
		rows := make([]old, live)
		for i := range rows {
			rows[i] = old{scope: "g", id: fmt.Sprintf("live %d", i), made: time.Hour,
				notEvent: notEvent, notKey: !notEvent}
		}
		site.put(t, rows...)
	}
	record(t, s, "g", caughtUp())
	reap(t, s, soonest())
	tx, err := site.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	for _, table := range []string{"processed_events", "idempotency_keys"} {
		_, err = tx.ExecContext(t.Context(), "UPDATE "+table+" SET fence = fence + 1 "+
			"WHERE tenant = '' AND scope = 'g' AND event_type = 'x' AND event_id = 'live 10'")
		require.NoError(t, err)
	}
	result := reap(t, s, soonest())
	require.Equal(t, []int64{n, n}, []int64{result.Events, result.Claims})
}

// alikeKeys: a reaper deletes no row with a key that differs by case, by a space or by an accent.
func alikeKeys(t *testing.T, site Site) {
	s := site.store(t)
	site.put(t, old{scope: "g", id: "a", made: 3 * day, expired: 2 * day})
	for _, id := range []string{"A", "a ", "á"} {
		site.put(t, old{scope: "g", id: id, made: 3 * day})
	}
	record(t, s, "g", caughtUp())
	reap(t, s, soonest())
	result := reap(t, s, soonest())
	require.Equal(t, []int64{1, 1}, []int64{result.Events, result.Claims})
	require.Len(t, site.left(t), 6)
	require.NotContains(t, site.left(t), "event/a")
}

// atOnce: of two reapers, one deletes and the other one returns without waiting. After a crash of a
// reaper, the next one starts when the lease has ended (rule 58).
func atOnce(t *testing.T, site Site) {
	s, peer := site.store(t), site.store(t)
	site.many(t, 60, old{scope: "g", made: 3 * day, expired: 2 * day, notKey: true})
	record(t, s, "g", caughtUp())
	reap(t, s, soonest())
	cfg := soonest()
	cfg.Batch = 10
	working, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	busy := cfg
	busy.Deleted = func(int64) { first.Do(func() { close(working); <-goOn }) }
	done := make(chan sqlstore.ReapResult)
	go func() {
		defer close(done)
		result, err := sqlstore.NewReaper(s, busy).RunOnce(t.Context())
		if err != nil {
			t.Errorf("reap: %v", err)
		}
		done <- result
	}()
	leased := func() int { return site.count(t, "SELECT count(*) FROM idem_leases") }
	select {
	case <-working: // its first batch is deleted
	case <-done:
		require.Fail(t, "the first reaper has deleted no batch")
	}
	result, err := sqlstore.NewReaper(peer, cfg).RunOnce(t.Context())
	close(goOn)
	require.NoError(t, err)
	require.True(t, result.Elsewhere)
	require.Zero(t, result.Events)
	require.EqualValues(t, 60, (<-done).Events)
	require.Zero(t, leased(), "the lease ends with the run")

	for lease, elsewhere := range map[time.Duration]bool{time.Hour: true, -time.Second: false} {
		site.exec(t, "DELETE FROM idem_leases")
		site.exec(t, "INSERT INTO idem_leases (name, token, lease_until) VALUES ('reaper', ¿, ¿)",
			dedup.NewToken().String(), site.Dialect().Time(ago(-lease)))
		result, err := sqlstore.NewReaper(s, cfg).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, elsewhere, result.Elsewhere, lease)
	}
}

// lostLease: a reaper stops deleting when another one has taken its lease (rule 58).
func lostLease(t *testing.T, site Site) {
	s := site.store(t)
	record(t, s, "g", caughtUp())
	cfg := soonest()
	results := make(chan sqlstore.ReapResult, 100)
	cfg.Interval = 10 * time.Millisecond
	cfg.Observe = func(result sqlstore.ReapResult, _ error) {
		select {
		case results <- result:
		default:
		}
	}
	r := sqlstore.NewReaper(s, cfg)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	require.False(t, (<-results).Elsewhere)
	site.exec(t, "UPDATE idem_leases SET token = ¿", dedup.NewToken().String())
	require.Eventually(t, func() bool { return (<-results).Elsewhere }, 10*time.Second,
		time.Millisecond)
	stop()
	require.NoError(t, <-done)
	require.Equal(t, 1, site.count(t, "SELECT count(*) FROM idem_leases"),
		"the lease of the other reaper stays")
}
