package drills

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// takeover is a drill with a primary that dies and a standby that takes over.
type takeover struct {
	name        string
	synchronous bool
	cut         time.Duration // before the death of the primary, the standby stops to receive
	loses       bool          // commits that the standby lacks are lost
}

// P-18: a standby takes over from a primary that dies under load. With a synchronous standby no
// event is lost and no event has two effects. With an asynchronous one the last commits are lost,
// effects and records together, and a rewind repeats exactly those.
func TestPostgresFailover_P18(t *testing.T) {
	needLong(t)
	for _, d := range []takeover{
		{name: "synchronous standby", synchronous: true},
		{name: "synchronous standby cut off", synchronous: true, cut: 3 * time.Second},
		{name: "synchronous standby cut off for longer than COMMIT waits", synchronous: true, cut: 25 * time.Second},
		{name: "asynchronous standby", loses: true},
		{name: "asynchronous standby cut off", cut: time.Second, loses: true},
	} {
		t.Run(d.name, d.run)
	}
}

func (d takeover) run(t *testing.T) {
	primary := startPostgres(t)
	primary.prepare(t, "drill")
	heir, k := primary.follow(t)
	if d.synchronous {
		primary.exec(t, "postgres", "ALTER SYSTEM SET synchronous_standby_names = 'heir'")
		primary.exec(t, "postgres", "SELECT pg_reload_conf()")
		primary.awaitSynchronous(t)
	}
	url := "postgres://idem@" + primary.addr + "," + heir.addr + "/drill?sslmode=disable&connect_timeout=2&target_session_attrs=read-write"
	outside, published := newCounts(), newCounts()
	var workers []*idem.Processor
	for range 3 {
		router := idem.NewRouter()
		idem.On(router, "outside", func(_ context.Context, e idem.Event[event]) error {
			outside.add(e.ID)
			return nil
		})
		workers = append(workers, worker(t, pgxWorker(t, router, url), router))
	}
	relays := startRelays(t, url, published)
	l := startLoad(t, workers, time.Millisecond, "inside", "outside")
	time.Sleep(4 * time.Second)
	if d.cut > 0 {
		k.stop()
		time.Sleep(d.cut)
	}
	primary.crash()
	heir.promote(t)
	time.Sleep(4 * time.Second)
	l.stop()
	r := tally(l.sent("inside"), effectsIn(t, heir.url("drill")))
	r.began = l.began
	relays()
	phantoms := 0
	in := effectsIn(t, heir.url("drill"))
	for id := range published.copyOf() {
		if in[id] == 0 {
			phantoms++
		}
	}
	out := tally(l.sent("outside"), outside.copyOf())
	r.notes = fmt.Sprintf("events of On: sent=%d lost=%d doubled=%d; published without a transaction: %d",
		out.sent, out.lost, out.doubled, phantoms)
	r.print(t)
	require.Zero(t, r.doubled)
	require.Zero(t, out.lost)
	if !d.loses {
		require.Zero(t, r.lost)
		require.Zero(t, phantoms)
	} else if d.loses && d.cut > 0 {
		require.Positive(t, r.lost, "else the drill shows nothing")
	}
	l.again(t, workers[0]) // a rewind
	again := tally(l.sent("inside"), effectsIn(t, heir.url("drill")))
	require.Zero(t, again.lost, "after a rewind")
	require.Zero(t, again.doubled, "after a rewind")
	twice := tally(l.sent("outside"), outside.copyOf())
	t.Logf("drill: %s after a rewind: lost=%d doubled=%d (events of On: lost=%d doubled=%d)", strings.TrimPrefix(t.Name(), "Test"),
		again.lost, again.doubled, twice.lost, twice.doubled)
	if !d.loses && d.cut < lease { // a longer outage is the window of On
		require.Zero(t, twice.doubled, "no record of a claim is lost")
	}
}

// follow starts a standby that reaches this server through a link.
func (p *postgres) follow(t testing.TB) (*postgres, *link) {
	t.Helper()
	k := newLink(t, p.addr)
	direct := p.addr
	p.addr = k.addr
	s := p.standby(t, "heir")
	p.addr = direct
	return s, k
}

// awaitSynchronous waits until commits wait for the standby.
func (p *postgres) awaitSynchronous(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), p.url("postgres"))
		if err != nil {
			return false
		}
		defer conn.Close(t.Context())
		var n int
		err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&n)
		return err == nil && n == 1
	}, 20*time.Second, 50*time.Millisecond, "no standby is synchronous")
}

// promote makes the standby a primary.
func (p *postgres) promote(t testing.TB) {
	t.Helper()
	run(t, filepath.Join(p.bin, "pg_ctl"), "-D", p.dir, "-w", "-t", "30", "promote")
}
