package cells

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/history"
)

// run is one cell while it runs.
type run struct {
	combination
	t     testing.TB
	topic string
	url   string // of the control server
	base  *base
	wire  *wire  // nil: the workers have direct connections
	group *group // nil: a call, or a relay
	box   *box   // nil: no relay
	kafka *kafka // nil: a call

	reached chan string   // the name of a worker at the step of the fault
	goOn    chan struct{} // closed when that worker may go on
	asked   chan string   // workers that claim

	restarted func(stands bool) // see gathering.seat

	mu      sync.Mutex
	first   string         // the worker at the step
	effects map[string]int // by idempotency key
	runs    []string       // that had these effects
	told    map[string]told
	history []history.Entry
}

const stepLimit = 30 * time.Second

// lease is that of the workers: long enough for a busy machine, and short if all cells run, which
// then have the machine alone.
func lease() time.Duration {
	if all() {
		return 2 * time.Second
	}
	return 4 * time.Second
}

// control serves the workers of all cells.
type control struct {
	mu   sync.Mutex
	runs map[string]*run
}

func (c *control) add(r *run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = make(map[string]*run)
	}
	c.runs[r.topic] = r
}

func (c *control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	topic, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	c.mu.Lock()
	cell := c.runs[topic]
	c.mu.Unlock()
	if cell == nil {
		http.NotFound(w, r)
		return
	}
	name := r.FormValue("worker")
	switch what {
	case "reached":
		cell.stand(name, r)
	case "asks":
		select {
		case cell.asked <- name:
		default: // one answer is enough
		}
	case "effect":
		cell.mu.Lock()
		cell.effects[r.FormValue("key")]++
		cell.runs = append(cell.runs, r.FormValue("run"))
		cell.mu.Unlock()
		cell.note(history.Effect, r)
	case "did":
		cell.note(history.Deed(r.FormValue("deed")[0]), r)
	case "answer":
		cell.mu.Lock()
		cell.told[name] = told{answer(r.FormValue("answer")), r.FormValue("run")}
		cell.mu.Unlock()
	}
}

// note adds to the history.
func (c *run) note(d history.Deed, r *http.Request) {
	fence, _ := strconv.ParseUint(r.FormValue("fence"), 10, 64) // zero: not known
	at, _ := strconv.ParseInt(r.FormValue("at"), 10, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, history.Entry{
		From: time.Unix(0, at), To: time.Unix(0, at), Worker: r.FormValue("worker"), Deed: d, Fence: fence,
	})
}

// stand holds the first worker at its step until the test lets it go on.
func (c *run) stand(name string, r *http.Request) {
	c.mu.Lock()
	if c.first == "" {
		c.first = name
	}
	first := c.first == name
	c.mu.Unlock()
	if !first {
		return
	}
	c.reached <- name
	select {
	case <-c.goOn:
	case <-r.Context().Done():
	}
}

// run runs the cell, and returns the result.
func (c *run) run() outcome {
	workers := map[string]*process{"first": c.begin("first", true)}
	if c.fault == copied || c.fault == rebalance {
		workers["second"] = c.begin("second", true)
	}
	if c.group != nil {
		c.group.waitMembers(len(workers))
		c.group.produce()
	}
	name := c.await(workers)
	first := workers[name]
	other := map[string]string{"first": "second", "second": "first"}[name]
	ensure := func() *process {
		if workers[other] == nil {
			workers[other] = c.begin(other, false)
		}
		return workers[other]
	}
	var o outcome
	switch c.fault {
	case kill:
		c.letGo()
		if c.step.onTheWire() {
			c.sprung()
			first.signal(syscall.SIGKILL)
			c.openWire(true)
		}
		first.wait(10 * time.Second)
		c.expel(name)
		ensure()
	case panics:
		c.letGo()
	case hang:
		c.letGo()
		if c.group == nil {
			time.Sleep(lease() * 3 / 2) // the claim outlives a lease
			first.signal(syscall.SIGKILL)
		} else {
			time.Sleep(200 * time.Millisecond)
			first.signal(syscall.SIGTERM)
		}
		first.wait(25 * time.Second)
		ensure()
	case stop:
		if c.step.onTheWire() {
			c.letGo()
			c.sprung()
		}
		first.signal(syscall.SIGSTOP)
		first.waitStopped()
		c.expel(name)
		if c.box != nil {
			c.box.add("A") // for the other relay, also if no row is left
		}
		second := ensure()
		o.replaced = c.finished(second, other, c.standsStill())
		first.signal(syscall.SIGCONT)
		c.letGoOrOpen()
	case cutBefore:
		if c.step == beforeClaim || c.step == beforeEnd {
			c.wire.set(cutAsk)
			c.letGo()
			c.sprung()
		} else {
			c.wire.cutAll()
			c.letGo()
		}
	case cutAfter:
		c.letGo()
		c.sprung()
		c.openWire(true)
	case restart:
		if c.step.onTheWire() {
			c.letGo()
			c.sprung()
		}
		c.restarted(true)
		if c.step.onTheWire() {
			c.openWire(true)
		} else {
			c.letGo()
		}
	case rebalance:
		if c.step.onTheWire() {
			c.letGo()
			c.sprung()
		}
		c.expel(name)
		c.othersAsk(other)
		c.letGoOrOpen()
	case copied:
		if c.step.onTheWire() {
			c.letGo()
			c.sprung()
		}
		c.othersAsk(other)
		c.letGoOrOpen()
	case kafkaRestart:
		if c.step.onTheWire() {
			c.letGo()
			c.sprung()
		}
		c.kafka.restart()
		if c.step.onTheWire() {
			c.openWire(c.step == beforeAck) // the connection to Kafka is gone
		} else {
			c.letGo()
		}
	case unsent:
		c.wire.set(cutAsk)
		c.letGo()
		c.sprung()
	case unacked:
		c.letGo()
		c.sprung()
		c.openWire(true)
	}
	switch {
	case c.box != nil:
		c.endRelay(workers)
		return c.box.outcome(o.replaced)
	case c.group == nil:
		if c.fault != stop && c.fault != copied {
			first.wait(finalLimit + 5*time.Second)
		}
		if c.store != inMemory { // else the first process has both callers
			ensure()
		}
		c.endCalls(workers)
		o.answer, o.first = c.answerOf(other), c.answerOf(name)
	default:
		c.endGroup(workers)
		if o.letters = c.group.deadLetters(); o.letters > 0 && c.kind == careful {
			o.answer = letter
		}
	}
	var runs []string
	runs, o.sameKey = c.happened()
	o.effects = len(runs)
	c.mu.Lock()
	defer c.mu.Unlock()
	results := make(map[string]bool)
	for name, a := range c.told {
		if a.answer == result {
			results[a.run] = true
		}
		if a.run != "" && !slices.Contains(runs, a.run) {
			o.broken = append(o.broken, fmt.Sprintf("the %s caller has the result of the run %q, which had no effect", name, a.run))
		}
		if a.run == "" && a.answer == result {
			o.broken = append(o.broken, fmt.Sprintf("the %s caller has an empty result", name))
		}
	}
	// With Rerun the client of a handler that stood still has the answer of its own run.
	if len(results) > 1 && c.kind.base() != viaHTTP {
		o.broken = append(o.broken, fmt.Sprintf("the callers have %d results", len(results)))
	}
	o.broken = append(o.broken, history.Broken(c.history, c.store == onRedis || c.store == onCluster)...)
	return o
}

// begin starts a worker of the cell.
func (c *run) begin(name string, armed bool) *process {
	c.t.Helper()
	s := spec{
		Kind: c.kind, Store: c.store, Step: c.step, Fault: c.fault, Armed: armed, Name: name,
		Lease: lease(), Control: c.url + "/" + c.topic, Topic: c.topic, Place: c.base.place,
	}
	if c.wire != nil {
		s.Place.Through = c.wire.through
	}
	if c.group != nil {
		s.Brokers = c.group.broker
	}
	if c.box != nil {
		s.Brokers = c.box.broker
	}
	return begin(c.t, s)
}

// await waits until a worker stands at the step. Before an answer that is held back, the wire is
// set first.
func (c *run) await(workers map[string]*process) string {
	c.t.Helper()
	ended := workers["first"].ended
	if len(workers) > 1 {
		ended = nil // it may have got the result of the one that is about to stand at the step
	}
	select {
	case name := <-c.reached:
		switch {
		case c.step.onTheWire():
			c.wire.set(holdFinal)
		case c.fault == cutAfter && c.kind.inTx():
			c.wire.set(holdFirst)
		case c.fault == cutAfter:
			c.wire.set(holdFinal)
		}
		return name
	case <-ended:
		require.Fail(c.t, "the first worker ended before the step", "%v", workers["first"].err)
	case <-time.After(stepLimit):
		require.Fail(c.t, "no worker reaches the step")
	}
	return ""
}

func (c *run) letGo() { close(c.goOn) }

// letGoOrOpen ends the wait of the worker, at the step or for an answer.
func (c *run) letGoOrOpen() {
	if c.step.onTheWire() {
		c.openWire(false)
	} else {
		c.letGo()
	}
}

func (c *run) openWire(drop bool) {
	c.wire.drop.Store(drop)
	close(c.wire.open)
}

// sprung waits until the trap of the wire has cut a connection or held an answer.
func (c *run) sprung() {
	c.t.Helper()
	select {
	case <-c.wire.sprung:
	case <-time.After(stepLimit):
		require.Fail(c.t, "nothing to cut or to hold on the wire")
	}
}

func (c *run) expel(name string) {
	if c.group != nil {
		c.group.expel(name)
	}
}

// othersAsk waits until the other worker has asked the store, or has had the time to.
func (c *run) othersAsk(other string) {
	limit := time.After(1500 * time.Millisecond)
	for {
		select {
		case name := <-c.asked:
			if name == other {
				time.Sleep(100 * time.Millisecond)
				return
			}
		case <-limit:
			return
		}
	}
}

// standsStill is how long the first worker stands still. A database ends the session of a stopped
// transaction some seconds after the limit of the handler. The lock of a file stays until its
// process goes on.
func (c *run) standsStill() time.Duration {
	if c.lockedFile() {
		return lease() * 3 / 2
	}
	return 20 * time.Second
}

// lockedFile reports whether the stopped worker keeps the others out.
func (c *run) lockedFile() bool {
	return c.store == onSQLite && c.kind.inTx() && c.step != beforeClaim && c.step != afterEnd
}

// finished waits until a worker has finished the work, for a time, and reports whether it has.
func (c *run) finished(p *process, name string, limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		if c.settled(name) {
			return true
		}
		if !p.running() {
			break
		}
	}
	return c.group == nil && c.settled(name)
}

// settled reports whether a worker has finished the work.
func (c *run) settled(name string) bool {
	switch {
	case c.box != nil:
		return c.box.empty()
	case c.group != nil:
		return c.group.settled()
	}
	return c.answerOf(name) != noAnswer
}

func (c *run) answerOf(name string) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told[name].answer
}

// endCalls waits for the calls of all workers. Those that were not killed have posted their
// answers.
func (c *run) endCalls(workers map[string]*process) {
	c.t.Helper()
	for name, p := range workers {
		p.wait(finalLimit + 5*time.Second)
		if c.fault != kill && c.fault != hang || name == "second" {
			require.NoError(c.t, p.err, "the %s worker", name)
		}
	}
}

// endRelay waits until all rows are settled, with one that is added last, and stops the relays.
func (c *run) endRelay(workers map[string]*process) {
	c.t.Helper()
	c.box.add("A")
	c.box.add("B")
	require.Eventually(c.t, c.box.empty, finalLimit, 30*time.Millisecond, "a row is not settled")
	for _, p := range workers {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range workers {
		p.wait(25 * time.Second)
		if c.fault != kill || p.name != "first" {
			require.NoError(c.t, p.err, "the %s relay", p.name)
		}
	}
}

// endGroup waits until all records are settled, and stops the workers.
func (c *run) endGroup(workers map[string]*process) {
	c.t.Helper()
	require.Eventually(c.t, c.group.settled, finalLimit, 30*time.Millisecond, "a record is not settled")
	for _, p := range workers {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range workers {
		p.wait(25 * time.Second)
	}
}

// happened returns the runs that had an effect, and whether the effects have one key.
func (c *run) happened() (runs []string, sameKey bool) {
	if c.kind.inTx() {
		return c.base.runs(c.t, c.topic), true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.effects {
		sameKey = key != ""
	}
	return slices.Clone(c.runs), len(c.runs) == 0 || len(c.effects) == 1 && sameKey
}
