package cells

import (
	"fmt"
	"hash/fnv"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// all reports whether every cell runs.
func all() bool { return os.Getenv("IDEM_CELLS") == "all" }

// named returns the pattern in IDEM_CELLS, if it is one: only cells with such names run.
func named(t testing.TB) *regexp.Regexp {
	t.Helper()
	if text := os.Getenv("IDEM_CELLS"); text != "" && !all() {
		pattern, err := regexp.Compile(text)
		require.NoError(t, err)
		return pattern
	}
	return nil
}

// slot is one of the share: a fault with a kind, or a fault with a store. The seed chooses its
// cell.
type slot struct {
	fault fault
	other string
}

// slotsOf returns the slots that a cell may take. A kind with Rerun shares its slot with the kind
// without, so that the share takes no longer. A restart of Kafka shares a slot with a rebalance.
func slotsOf(c combination) [2]slot {
	f := c.fault
	if f == kafkaRestart {
		f = rebalance
	}
	return [2]slot{{f, string(c.kind.base())}, {f, string(c.store)}}
}

// selected returns the cells of this run. By default a seed chooses one cell for each slot of the
// share. No cell restarts a server then, since other tests use the servers too: IDEM_CELLS_RESTART
// means that no other test does. A pattern that matches no cell is an error.
func selected(seed uint64, only *regexp.Regexp) (some []combination, err error) {
	chosen := make(map[slot]combination)
	lowest := make(map[slot]uint64)
	for _, c := range cells() {
		if c.fault == restart && os.Getenv("IDEM_CELLS_RESTART") == "" {
			continue
		}
		if only != nil && only.MatchString(c.String()) || all() {
			some = append(some, c)
		}
		h := hashOf(fmt.Sprint(seed, c))
		for _, p := range slotsOf(c) {
			if _, known := lowest[p]; !known || h < lowest[p] {
				lowest[p], chosen[p] = h, c
			}
		}
	}
	switch {
	case only != nil && len(some) == 0:
		return nil, fmt.Errorf("no cell has a name that matches %q; cells that restart a server need IDEM_CELLS_RESTART", only)
	case only != nil || all():
		return some, nil
	}
	share := make(map[combination]bool) // each once
	for _, c := range chosen {
		share[c] = true
	}
	return slices.Collect(maps.Keys(share)), nil
}

func seedOf(t testing.TB) uint64 {
	t.Helper()
	if text := os.Getenv("IDEM_CELLS_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		return seed
	}
	return uint64(time.Now().Unix() / (24 * 3600))
}

// board runs cells, and keeps their results.
type board struct {
	t       *testing.T
	control control
	url     string
	bases   map[store]*base

	mu   sync.Mutex
	came map[combination]string
}

// TestCells runs the cells, and writes docs/proof.md if all of them ran.
func TestCells(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers and some time")
	}
	seed := seedOf(t)
	require.False(t, all() && os.Getenv("IDEM_CELLS_RESTART") == "", "servers are restarted: use `make cells`")
	some, err := selected(seed, named(t))
	require.NoError(t, err)
	t.Logf("IDEM_CELLS_SEED=%d: %d of %d cells", seed, len(some), len(cells()))
	b := &board{t: t, bases: make(map[store]*base), came: make(map[combination]string)}
	for _, s := range stores {
		b.bases[s] = openBase(t, s)
	}
	server := httptest.NewServer(&b.control)
	defer server.Close()
	b.url = server.URL

	began, tested := time.Now(), commit(t)
	var calm []combination
	restarts := make(map[string][]combination)
	for _, c := range some {
		if c.fault == restart {
			restarts[servers[c.store]] = append(restarts[servers[c.store]], c)
		} else {
			calm = append(calm, c)
		}
	}
	b.all(calm, parallel(), nil)
	for _, name := range slices.Sorted(maps.Keys(restarts)) {
		for batch := range slices.Chunk(restarts[name], 2*parallel()) {
			b.all(batch, len(batch), gather(t, name, len(batch)))
		}
	}
	took := time.Since(began)
	t.Logf("%d cells in %s", len(b.came), took.Round(time.Second))
	ran := fmt.Sprintf("%s%s in %d s: %d CPUs, %s/%s, %s, commit %s.", ranPrefix, began.UTC().Format(time.DateOnly),
		int(took.Seconds()), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), tested)
	if all() {
		write(t, page{ran, b.came})
	} else if os.Getenv("IDEM_CELLS_UPDATE") != "" {
		text, _ := readProof(t)
		came, err := parse(text)
		require.NoError(t, err)
		maps.Copy(came, b.came)
		write(t, page{ranAgain(ranOf(text), os.Getenv("IDEM_CELLS"), len(b.came), tested), came})
	}
}

// ranAgain adds to the line of a run that some of its cells, or further ones, are of another run. A
// later run of the same pattern takes the place of an earlier one.
func ranAgain(ran, pattern string, cells int, tested string) string {
	name := fmt.Sprintf(" Cells that match `%s`:", pattern)
	if before, after, found := strings.Cut(ran, name); found {
		_, rest, _ := strings.Cut(after, ".")
		ran = before + rest
	}
	return fmt.Sprintf("%s%s %d, at commit %s.", ran, name, cells, tested)
}

func write(t testing.TB, p page) {
	t.Helper()
	_, rest := readProof(t)
	require.NoError(t, os.WriteFile(proof, []byte(render(p)+rest), 0o644)) //nolint:gosec // a page of the docs
}

// commit returns the commit that is tested.
func commit(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// parallel is how many cells run at a time: they wait for leases most of the time.
func parallel() int {
	if n, err := strconv.Atoi(os.Getenv("IDEM_CELLS_PARALLEL")); err == nil {
		return n
	}
	return 6 * runtime.GOMAXPROCS(0)
}

// all runs cells, some at a time.
func (b *board) all(some []combination, atOnce int, server *gathering) {
	if server != nil {
		go server.restart()
		defer func() { <-server.done }()
	}
	turns := make(chan struct{}, atOnce)
	b.t.Run("cells", func(t *testing.T) {
		var running sync.WaitGroup
		for _, c := range some {
			turns <- struct{}{}
			running.Go(func() {
				defer func() { <-turns }()
				restarted := func(bool) {}
				if server != nil {
					restarted = server.seat()
					defer restarted(false) // also if the cell fails early, or -run leaves it out
				}
				t.Run(c.String(), func(t *testing.T) { b.one(t, c, restarted) })
			})
		}
		running.Wait()
	})
}

func (b *board) one(t *testing.T, c combination, restarted func(stands bool)) {
	base := b.bases[c.store]
	if c.store == onSQLite {
		base = openFile(t)
	}
	r := &run{
		combination: c, t: t, url: b.url, base: base,
		topic: fmt.Sprintf("cell-%x", hashOf(c.String())), restarted: restarted,
		reached: make(chan string, 2), goOn: make(chan struct{}), asked: make(chan string, 100),
		effects: make(map[string]int), told: make(map[string]told),
	}
	if c.kind.records() {
		partitions := int32(1)
		if c.fault == copied {
			partitions = 2
		}
		r.group = newGroup(t, r.topic, partitions, c.fault == kafkaRestart)
		r.kafka = r.group.kafka
	}
	if c.kind == relays {
		r.box = newBox(t, c.store, r.topic, base.addrs, c.fault == kafkaRestart)
		r.kafka = r.box.kafka
		r.base = r.box.base
	}
	switch {
	case c.step == beforeAck || c.fault.ofBroker():
		r.wire = newWire(t, "", []string{r.box.broker})
	case c.fault == cutBefore || c.fault == cutAfter || c.step == beforeAnswer:
		r.wire = newWire(t, c.store, base.addrs)
	}
	b.control.add(r)
	came := "no outcome" + unexpected
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.came[c] = came
	}()
	o := r.run()
	assert.Empty(t, o.fits(expect(c)), "came: %s, expected: %s", o, expect(c))
	assert.Contains(t, expectFirst(c), o.first, "the answer of the caller that met the fault")
	assert.False(t, o.first == result && o.effects == 0, "a result without an effect")
	if c.fault == stop && !r.lockedFile() {
		assert.True(t, o.replaced, "no other worker finished while the first one stood still")
	}
	came = o.String()
	if t.Failed() {
		came += unexpected
	}
}

func hashOf(text string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, text)
	return h.Sum64()
}
