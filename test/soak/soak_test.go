package soak

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// TestSoak disturbs workers that handle millions of events. No event is lost. The effects of
// transactions happen once (rules 10, 11). A disturbance repeats a bounded number of other effects,
// each with its idempotency key.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: not with -short")
	}
	for _, l := range lines {
		if l.short || long() {
			t.Run(l.String(), l.sized().run)
		}
	}
}

// crew is the workers of a line, by the name of the member.
type crew struct {
	t     testing.TB
	specs map[string]spec
	wires map[string]*wire
	now   map[string]*process
	seen  map[string]int64 // handled by the process of the moment, at the last look
	dir   string
	begun int
}

func (c *crew) begin(name string) {
	c.t.Helper()
	s := c.specs[name]
	c.begun++
	s.History = filepath.Join(c.dir, fmt.Sprintf("%s%d", historyFile, c.begun))
	c.now[name], c.seen[name] = begin(c.t, s, filepath.Join(c.dir, fmt.Sprintf("log-%d", c.begun))), 0
}

// dump logs the ends of the logs of the workers.
func (c *crew) dump() {
	c.t.Helper()
	for name, p := range c.now {
		c.t.Logf("%s:\n%s", name, p.tail())
	}
}

// working returns the workers that have handled events since the last look.
func (c *crew) working() (names []string) {
	c.t.Helper()
	for _, name := range []string{"a", "b"} {
		p := c.now[name]
		if p == nil {
			continue
		}
		p.requireRunning()
		if n := p.handled.Load(); n > c.seen[name] {
			c.seen[name] = n
			names = append(names, name)
		}
	}
	return names
}

func (l line) run(t *testing.T) {
	seed := newSeed(t)
	rng := mathrand.New(mathrand.NewPCG(seed, 0))
	began := time.Now()
	base, brokers := prepare(t, l.store), testenv.Kafka(t)
	topic := "soak-" + strings.ToLower(rand.Text()[:10])
	g := newGroup(t, brokers, topic)
	load := newLoad(t, rng, brokers, topic, l.events)
	c := &crew{
		t: t, dir: t.TempDir(), specs: make(map[string]spec), wires: make(map[string]*wire),
		now: make(map[string]*process), seen: make(map[string]int64),
	}
	for _, name := range l.members() {
		c.wires[name] = newWire(t, base.addrs, l.kind.inTx())
		at := base.place
		at.Through = c.wires[name].through
		c.specs[name] = spec{Name: name, Kind: l.kind, Client: l.client, Brokers: brokers, Topic: topic, Place: at}
		c.begin(name)
	}

	d := disturber{line: l, t: t, rng: rng, crew: c, load: load, group: g}
	commits := g.watch()
	killed, hits := d.run()
	for !load.spent() {
		load.release(50_000)
	}
	d.finish()
	for _, p := range c.now {
		p.requireRunning()
		p.stop(30 * time.Second)
	}

	h := read(t, c.dir, l.events)
	require.Empty(t, g.deadLetters(), "dead letters")
	require.Empty(t, h.unfinished(load.at, commits.end()), "offsets that were committed above an unfinished event")
	require.Empty(t, l.broken(h), "rules of claims")
	effects, different := l.effects(t, base, h)
	repeats := effects - different
	require.Equal(t, l.events, different, "events with an effect: the others are lost")
	require.LessOrEqual(t, repeats, l.mayRepeat(), "repeats")
	lost := 0
	for _, w := range c.wires {
		lost += int(w.lost.Load())
	}
	assert.GreaterOrEqual(t, hits, l.kills*3/4, "kills while work was left")
	assert.GreaterOrEqual(t, lost, l.cuts*3/4, "requests and answers that were lost")
	t.Logf("soak: %s seed=%d size=%d kills=%d cuts=%d rebalances=0 outcome=none lost, %d repeats; %d copies; %d kills while work was left; %d entries and %d commits checked; %s",
		strings.ReplaceAll(t.Name(), "_", " "), seed, l.events, killed, lost, repeats, load.sent-l.events, hits, h.entries, len(commits.all), time.Since(began).Round(time.Second))
}

func newSeed(t testing.TB) uint64 {
	t.Helper()
	seed := mathrand.Uint64() >> 32 // short enough to be typed
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "IDEM_SEED")
	}
	t.Logf("IDEM_SEED=%d", seed)
	return seed
}

// members are the names of the workers. A store of one process has one.
func (l line) members() []string {
	if l.store == onSQLite || l.store == inMemory {
		return []string{"a"}
	}
	return []string{"a", "b"}
}

// mayRepeat is how many effects may happen again: zero in transactions, else those of the runs that
// a disturbance can have cut short.
func (l line) mayRepeat() int {
	switch l.kind {
	case on:
		return (l.kills + l.cuts) * partitions
	case onBatch:
		return (l.kills + l.cuts) * partitions * maxBatch
	case onTx, onBatchTx:
	}
	return 0
}

// effects returns how many effects there are, and of how many events.
func (l line) effects(t *testing.T, b base, h *histories) (all, different int) {
	t.Helper()
	if !l.kind.inTx() {
		return h.effects()
	}
	row := b.db.QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT n) FROM effects")
	require.NoError(t, row.Scan(&all, &different))
	return all, different
}

// broken returns the rules that the histories of claims break. The database holds the claims of
// transactions.
func (l line) broken(h *histories) []string {
	if l.kind.inTx() {
		return nil
	}
	return h.broken(l.store == onRedis || l.store == onCluster)
}
