package idemtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// TortureOption changes a call of [Torture].
type TortureOption func(*torture)

type torture struct {
	records []Record
	store   func(world any) (open func(*process) dedup.Store)
	only    string
	pairs   int
	seed    uint64
	accept  []string
}

// Records are the records of each run. A run handles them in order; records with different keys are
// in different partitions.
func Records(list ...Record) TortureOption {
	return func(o *torture) { o.records = append(o.records, list...) }
}

// TxStore names the store of each run, for handlers with transactions of the type Tx. The store is
// that of the database of the effects, so it belongs to the world. It must work without a network,
// as one in SQLite does.
func TxStore[W, Tx any](of func(W) dedup.TxStore[Tx]) TortureOption {
	return func(o *torture) {
		o.store = func(world any) func(*process) dedup.Store {
			s := of(world.(W))
			return func(p *process) dedup.Store { return gateTx[Tx]{gate: gate{s, p}, store: s} }
		}
	}
}

// Only runs one schedule, from the output of an earlier run.
func Only(schedule string) TortureOption { return func(o *torture) { o.only = schedule } }

// Seed sets the seed of the schedules with two faults. The default is a new one, which is logged.
func Seed(seed uint64) TortureOption { return func(o *torture) { o.seed = seed } }

// Pairs sets how many schedules with two faults run. The default is 300.
func Pairs(n int) TortureOption { return func(o *torture) { o.pairs = n } }

// AcceptRepeats accepts that the named calls of [Faults.Call] have their effect again after a crash or
// an error, because the handler has no idempotency key. On allows that: between the effect and the
// completion lies a window. Without the option such a repetition fails the test.
func AcceptRepeats(what ...string) TortureOption {
	return func(o *torture) { o.accept = append(o.accept, what...) }
}

// Torture looks for the schedule of faults under which a handler leaves another world than in a run
// without faults.
//
// setup makes a new world for each run, which ends with its testing.TB. The fakes of the world pass
// their calls to the [Faults]. handlers registers
// the handlers under test, whose effects go to the world. state returns the state of the world; two
// runs are equal if reflect.DeepEqual says so.
//
// A run delivers the records, and each of them once more at the end. The faults are: the process
// dies before or after each call of the store and each call to the outside, and another one takes
// over; the process stands still beyond its lease while another one takes over, and goes on; an
// outside call fails, with or without its effect; another worker gets a copy of each record
// meanwhile, or handles the other partitions. First each fault happens alone at each point, then two
// of them.
//
// The first schedule that breaks the handler fails the test. It is shrunk to its shortest form, and
// told as a story, with the option that repeats it.
//
// Each run is in a bubble of testing/synctest, so leases and retries cost no time. Do not call
// Torture in a bubble.
func Torture[W any](
	t *testing.T, setup func(testing.TB, *Faults) W, handlers func(*idem.Router, W), state func(W) any,
	opts ...TortureOption,
) {
	t.Helper()
	if text, broken := Search(t, setup, handlers, state, opts...); broken {
		t.Fatal(text)
	} else {
		t.Log(text)
	}
}

// Search is [Torture] for a handler that may break: it returns what Torture prints, and whether a
// schedule broke the handler. A handler that has mistakes without faults still fails the test.
func Search[W any](
	t *testing.T, setup func(testing.TB, *Faults) W, handlers func(*idem.Router, W), state func(W) any,
	opts ...TortureOption,
) (text string, broken bool) {
	t.Helper()
	o := &torture{pairs: 300, seed: rand.Uint64()}
	for _, opt := range opts {
		opt(o)
	}
	o.fill()
	run := func(s schedule) (out outcomeOf) {
		synctest.Test(t, func(t *testing.T) {
			f := newFaults(s)
			w := setup(t, f)
			out = o.play(t, f, o.store(w), func(r *idem.Router) { handlers(r, w) }, func() any { return state(w) })
		})
		return out
	}
	clean := run(nil)
	if clean.err != nil {
		t.Fatalf("idemtest: the run without faults failed: %v\n%s", clean.err, story(clean.trace))
	}
	judge := func(s schedule) (out outcomeOf, bad bool) {
		out = run(s)
		return out, out.err != nil || !reflect.DeepEqual(out.state, clean.state) && !o.accepts(out.repeated)
	}
	plans, err := o.plans(clean)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plans {
		if _, bad := judge(s); bad {
			s = shrink(s, func(shorter schedule) bool { _, bad := judge(shorter); return bad })
			out, _ := judge(s)
			return report(s, clean, out), true
		}
	}
	return fmt.Sprintf("idemtest: %d points, %d schedules, none breaks the handler (seed %d)",
		len(clean.points), len(plans), o.seed), false
}

// fill sets the default store.
func (o *torture) fill() {
	if o.store != nil {
		return
	}
	o.store = func(any) func(*process) dedup.Store {
		s := memstore.New(memstore.Volatile())
		return func(p *process) dedup.Store { return gate{s, p} }
	}
}

// plans returns the schedules of a test.
func (o *torture) plans(clean outcomeOf) ([]schedule, error) {
	if o.only != "" {
		s, err := parseSchedule(o.only)
		return []schedule{s}, err
	}
	all := singles(clean.points, clean.partitions)
	rng := rand.New(rand.NewPCG(o.seed, 0))
	for range o.pairs {
		all = append(all, pair(clean.points, clean.partitions, rng.IntN))
	}
	return all, nil
}

// accepts reports whether all repeated calls are accepted, and there is one.
func (o *torture) accepts(repeated map[effect][]call) bool {
	for at, list := range repeated {
		if !slices.Contains(o.accept, at.what) || slices.ContainsFunc(list, func(c call) bool { return c.key != "" }) {
			return false
		}
	}
	return len(repeated) > 0
}

// outcomeOf is the end of a run.
type outcomeOf struct {
	state      any
	err        error
	points     []point
	partitions int
	trace      []told
	repeated   map[effect][]call
	dead       []string // the events that became dead letters, with their class
}

const (
	tortureGroup = "idemtest"
	copyRound    = 1000 // added to the partitions of copies
	deadLetters  = DefaultTopic + "." + tortureGroup + ".dlq"
	tortureLimit = 6 * time.Hour // of fake time, for all records of a run
	beyondLease  = 5 * time.Minute
	storyLines   = 60
)

// play runs one schedule in a bubble.
func (o *torture) play(
	t *testing.T, f *Faults, open func(*process) dedup.Store, handlers func(*idem.Router), state func() any,
) (out outcomeOf) {
	t.Helper()
	kafka, partitions := &topics{}, make(map[string]int32)
	deliver := func(round int32) { // each round has partitions of its own
		for _, r := range o.records {
			if _, known := partitions[r.Key]; !known {
				partitions[r.Key] = int32(len(partitions))
			}
			r.Partition = partitions[r.Key] + round*copyRound
			m, err := r.message(time.Now())
			if err != nil {
				t.Fatalf("idemtest: %v", err)
			}
			kafka.append(m)
		}
	}
	deliver(0)
	var all []*process
	var running sync.WaitGroup
	start := func() *process {
		p := o.start(t, f, kafka, open, handlers, len(all)+1)
		all = append(all, p)
		return p
	}
	first := start()
	first.numbered, f.first = true, first
	second := func(chosen func(place) bool, limit time.Duration) {
		done := make(chan struct{})
		p := start()
		running.Go(func() {
			defer close(done)
			_ = p.drain(chosen, limit) // records that wait are settled later
		})
		<-done
	}
	everywhere := func(place) bool { return true }
	first.copies = func() {
		deliver(1)
		second(func(at place) bool { return at.partition >= copyRound }, time.Second)
	}
	first.others = func() {
		second(func(at place) bool { return at.partition < copyRound && at != first.at() }, time.Second)
	}
	first.move = func() { second(everywhere, beyondLease) }
	ended := make(chan error, 1)
	running.Go(func() { ended <- first.drain(everywhere, tortureLimit) })
	select {
	case out.err = <-ended:
		if errors.Is(out.err, errDead) {
			out.err = nil
		}
	case <-first.died:
	}
	for round := 0; out.err == nil && round < 2; round++ {
		if round == 1 {
			f.note("-- every record is delivered once more")
			deliver(2)
		}
		out.err = start().drain(everywhere, tortureLimit)
	}
	f.stop()
	out.state = state()
	f.mu.Lock()
	out.points, out.trace = slices.Clone(f.points), slices.Clone(f.trace)
	f.mu.Unlock()
	out.partitions, out.repeated = len(partitions), f.repeated()
	for _, m := range kafka.all(func(topic string) bool { return topic == deadLetters }) {
		if e, err := deadletter.Parse(m); err == nil {
			out.dead = append(out.dead, fmt.Sprintf("%s (%s)", e.ID, e.Class))
		}
	}
	close(f.over)
	for _, p := range all {
		p.cancel(errDead)
	}
	running.Wait()
	for _, p := range all {
		_ = p.p.Close() // a dead process cannot record its progress
	}
	return out
}

// start starts a process.
func (o *torture) start(
	t *testing.T, f *Faults, kafka *topics, open func(*process) dedup.Store, handlers func(*idem.Router),
	number int,
) *process {
	t.Helper()
	p := &process{f: f, name: fmt.Sprintf("worker %d", number), kafka: kafka, died: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(context.WithValue(context.Background(), processKey{}, p))
	r := idem.NewRouter()
	handlers(r)
	processor, err := idem.NewProcessor(r, idem.Config{
		Store: open(p), Scope: tortureGroup, Producer: p,
		DeadLetterTopic: func(string) string { return deadLetters },
		Logger:          silent(),
		BusyWait:        10 * time.Millisecond,
	})
	if err != nil {
		t.Fatalf("idemtest: the handlers have mistakes:\n%v", err)
	}
	p.p = processor
	return p
}

// report tells a broken run.
func report(s schedule, clean, broken outcomeOf) string {
	var b strings.Builder
	fmt.Fprintf(&b, "idemtest: the handler does not survive the schedule %q\n\n%s\n", s, story(broken.trace))
	if broken.err != nil {
		fmt.Fprintf(&b, "the records were not settled: %v\n", broken.err)
	}
	fmt.Fprintf(&b, "state without faults: %+v\nstate now:            %+v\n", clean.state, broken.state)
	if len(broken.dead) > 0 {
		fmt.Fprintf(&b, "dead letters: %s\n", strings.Join(broken.dead, ", "))
	}
	for at, list := range broken.repeated {
		fmt.Fprintf(&b, "%q for event %q had its effect %d times: %s\n", at.what, at.event, len(list), advice(list))
	}
	fmt.Fprintf(&b, "repeat with the option idemtest.Only(%q)\n", s)
	return b.String()
}

// advice tells why a call had its effect again.
func advice(list []call) string {
	if slices.ContainsFunc(list, func(c call) bool { return c.key != "" }) {
		return "its idempotency key differs from run to run; use Event.IdempotencyKey"
	}
	return "it has no idempotency key; pass Event.IdempotencyKey, or accept it with AcceptRepeats"
}

// story tells the lines of a trace, with the time since the begin of the run. Equal lines that follow
// each other are told once.
func story(trace []told) string {
	var b strings.Builder
	for i, lines := 0, 0; i < len(trace); lines++ {
		if lines == storyLines {
			fmt.Fprintf(&b, "... and %d more lines\n", len(trace)-i)
			break
		}
		same := i + 1
		for same < len(trace) && trace[same].line == trace[i].line {
			same++
		}
		fmt.Fprintf(&b, "%8s  %s", trace[i].after.Round(time.Millisecond), trace[i].line)
		if same > i+1 {
			fmt.Fprintf(&b, " (%d times)", same-i)
		}
		b.WriteByte('\n')
		i = same
	}
	return b.String()
}
