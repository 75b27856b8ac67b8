package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// send emits one event and returns for how long it was under way after the commit.
func (b *mailbox) send(tl *tail, e emission, limit time.Duration) time.Duration {
	b.t.Helper()
	require.NoError(b.t, b.db.transact(b.t.Context(), queued, e.parent(), func(emit func([]emission) error) error {
		return emit([]emission{e})
	}))
	entry, at := b.entry(e), time.Now()
	return tl.wait(id(&entry), limit).Sub(at)
}

// A transaction that stays open, in another database of the cluster or in this one, holds back only
// its own rows (O-02).
func TestOutboxGoesOnBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	needTime(t)
	open, slack := 4*time.Second, 2*time.Second
	if soak() {
		open = time.Minute
	}
	b := newMailbox(t, testenv.Kafka(t), testenv.Postgres(t), outboxPartitions)
	name := "chaos_" + strings.ToLower(rand.Text())
	b.exec("CREATE DATABASE " + name)
	t.Cleanup(func() {
		_, err := b.pg.pool.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		require.NoError(t, err)
	})
	u, err := url.Parse(b.pg.url)
	require.NoError(t, err)
	u.Path, u.RawQuery = "/"+name, "sslmode=disable"
	other, err := pgx.Connect(t.Context(), u.String())
	require.NoError(t, err)
	defer other.Close(context.Background())
	tl, relay := b.tail(), b.relay("relay")
	b.send(tl, emission{0, 1, 1}, 20*time.Second)

	_, err = other.Exec(t.Context(), `BEGIN; CREATE TABLE t (i int); INSERT INTO t VALUES (1)`)
	require.NoError(t, err)
	own, err := b.pg.pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.pg.emit(t.Context(), own, bare, []emission{{1, 1, 1}}))
	began, n, longest := time.Now(), 0, time.Duration(0)
	for ; time.Since(began) < open; n++ {
		longest = max(longest, b.send(tl, emission{2, n, 2 + n%5}, slack))
	}
	require.NoError(t, own.Commit(t.Context()))
	entry := b.entry(emission{1, 1, 1})
	tl.wait(id(&entry), slack)
	var status string
	require.NoError(t, other.QueryRow(t.Context(), `SELECT count(*)::text FROM t`).Scan(&status), "the other transaction is still open")
	b.waitEmpty(5*time.Second, relay)
	relay.stop(20 * time.Second)
	b.requireSent(b.committed(), nil)
	require.Greater(t, n, 3)
	soaked(t, t.Name(), 0, n, 0, 0, 0, fmt.Sprintf("0 missing; two transactions open for %s, at most %s under way", open, longest.Round(time.Millisecond)))
}

// A listener wakes a relay before its interval ends. After the listener's connection is killed, the
// relay is late by an interval at most, and loses no row (O-12).
func TestOutboxListenerShot(t *testing.T) {
	t.Parallel()
	needTime(t)
	// Only its interval and its listener make the relay look for rows: it shares out shards every
	// third of a lease. A row that comes within half an interval is one that woke the relay.
	const interval, lease, slack = 30 * time.Second, 3 * time.Minute, 10 * time.Second
	shots := 3
	if soak() {
		shots = 50
	}
	rng, seed := newSeeded(t)
	b := newMailbox(t, testenv.Kafka(t), testenv.Postgres(t), outboxPartitions, pgoutbox.Notify())
	app := "listener-" + strings.ToLower(rand.Text()[:8])
	relay := start(t, "relay", programs.path(t, "relayworker"), nil, "-brokers", b.kafka.brokers[0], "-wake", "-interval", interval.String(),
		"-lease", lease.String(), "-postgres", b.pg.url+"&application_name="+app)
	tl := b.tail()
	const listeners = `FROM pg_stat_activity WHERE application_name = $1 AND query ILIKE 'LISTEN%'`
	listens := func() bool { relay.requireRunning(); return b.pg.count(t, `SELECT count(*) `+listeners, app) == 1 }
	require.Eventually(t, listens, 20*time.Second, 20*time.Millisecond, "nobody listens: %s", relay.stderr.tail(10))
	n := 0
	next := func() emission { n++; return emission{1, n, rng.IntN(outboxAggregates)} }
	b.send(tl, next(), 20*time.Second)
	var woken, shot []time.Duration
	for range shots {
		for range 5 {
			woken = append(woken, b.send(tl, next(), interval/2))
			pause(t, rng, 50*time.Millisecond)
		}
		require.Positive(t, b.pg.count(t, `SELECT count(pg_terminate_backend(pid)) `+listeners, app))
		for range 3 {
			shot = append(shot, b.send(tl, next(), interval+slack))
		}
		require.Eventually(t, listens, 20*time.Second, 20*time.Millisecond, "nobody listens any longer: %s", relay.stderr.tail(10))
	}
	slices.Sort(woken)
	b.waitEmpty(5*time.Second, relay)
	relay.stop(20 * time.Second)
	b.requireSent(b.committed(), nil)
	soaked(t, t.Name(), seed, n, 0, shots, 0, fmt.Sprintf("0 missing; interval %s: woken after %s (median), %s at most; listener shot: %s at most",
		interval, woken[len(woken)/2].Round(time.Millisecond), woken[len(woken)-1].Round(time.Millisecond), slices.Max(shot).Round(time.Millisecond)))
}
