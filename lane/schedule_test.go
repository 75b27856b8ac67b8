package lane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// This file drives whole partitions through random schedules, over several assignments of each.
// They have keys and copies, and handlers that take time, settle a part and ask to wait, fail for
// good, or hang beyond the end. Partitions close at any moment, with either cause. See world for
// the invariants.

// TestPartition_Schedules_K01_K31_K39_Rule25: a seed repeats the inputs, but not the choices of the
// Go scheduler.
func TestPartition_Schedules_K01_K31_K39_Rule25(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	schedules := uint64(10_000)
	if testing.Short() {
		schedules = 500
	}
	const shards = 2
	for shard := range uint64(shards) {
		t.Run(fmt.Sprint("shard", shard), func(t *testing.T) {
			t.Parallel()
			for n := shard; n < schedules; n += shards {
				require.NoError(t, runSchedule(t, seed, n, bug{}), "seed %d, schedule %d", seed, n)
			}
		})
	}
}

// TestPartition_SchedulesFindBugs: the checks must be able to fail.
func TestPartition_SchedulesFindBugs(t *testing.T) {
	for name, planted := range map[string]bug{
		"the greatest offset is committed (K-01)": {
			marks: func(t *tracker) watermark { return greatest{t} },
		},
		"some finished deliveries are forgotten": {
			marks: func(t *tracker) watermark { return &forgetful{tracker: t} },
		},
		"late work moves the watermark (K-39)": {
			marks: func(t *tracker) watermark { return unsealed{t} },
		},
		"a key is in two lanes at once (rule 25)": {
			orderKey: func(m *idem.Message) string { return fmt.Sprint(m.Offset) },
		},
		"keys that meet are separated": {
			orderKey: func(m *idem.Message) string {
				return string(m.Key) + fmt.Sprint(m.Offset%2)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			for n := range uint64(50) {
				if err := runSchedule(t, seed, n, planted); err != nil {
					t.Logf("schedule %d: %v", n, err)
					return
				}
			}
			t.Fatalf("seed %d: not found in 50 schedules", seed)
		})
	}
}

// bug is a fault that a test plants on purpose.
type bug struct {
	marks    func(*tracker) watermark
	orderKey func(*idem.Message) string
}

// greatest marks the greatest offset, as sarama does.
type greatest struct{ *tracker }

func (g greatest) Finish(seq uint64) bool {
	offset := g.ring[seq%uint64(len(g.ring))].offset
	moved := g.tracker.Finish(seq)
	if !g.sealed && offset >= g.next {
		g.next, g.moved, moved = offset+1, true, true
	}
	return moved
}

type forgetful struct {
	*tracker
	n int
}

func (f *forgetful) Finish(seq uint64) bool {
	f.n++
	return f.n%10 != 0 && f.tracker.Finish(seq)
}

type unsealed struct{ *tracker }

func (unsealed) Seal() {}

// runSchedule returns the first violation.
func runSchedule(t *testing.T, seed, n uint64, planted bug) (err error) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(rand.New(rand.NewPCG(seed, n)), planted)
		w.run(t.Context())
		err = w.violation
	})
	return err
}

// world is a partition's log, the store's records of it, and the committed offset. It checks:
//
//   - No two calls of one key run at once. Within an assignment the records of a key come in order,
//     each once.
//   - First effects of a key come in the order of the log, without a gap.
//   - The watermark is never above the oldest unsettled record, never moves back, and stands after
//     Close.
//   - The number of held messages is bounded, and idle keys take no memory.
//   - In the end every event has had its effect, and everything is committed.
type world struct {
	planted bug
	log     []*idem.Message
	event   []int         // by index into log: the index of its first copy
	index   map[int64]int // by offset

	mu        sync.Mutex
	rnd       *rand.Rand
	waits     int // how often handlers may still ask to wait; likewise
	fatals    int
	hangs     int
	effects   map[int]bool     // by event
	first     map[string][]int // by key: events whose effects are still to come, in order
	committed int64
	violation error
}

func newWorld(rnd *rand.Rand, planted bug) *world {
	w := &world{
		planted: planted, rnd: rnd, index: map[int64]int{}, effects: map[int]bool{},
		first: map[string][]int{},
		waits: rnd.IntN(8), fatals: rnd.IntN(8) / 6, hangs: rnd.IntN(8) / 5,
	}
	offset, keys := rnd.Int64N(100), 1+rnd.IntN(8)
	w.committed = offset
	for i := range 8 + rnd.IntN(28) {
		m := message(offset)
		event := i
		switch {
		case rnd.IntN(8) == 0: // no key, no order
		case i > 0 && rnd.IntN(6) == 0: // a copy, as a rule
			event = w.event[rnd.IntN(i)]
			m.Key = w.log[event].Key
			if m.Key == nil {
				event = i
			}
		default:
			m.Key = fmt.Append(nil, "k", rnd.IntN(keys))
		}
		if event == i && m.Key != nil {
			w.first[string(m.Key)] = append(w.first[string(m.Key)], i)
		}
		w.log, w.event = append(w.log, m), append(w.event, event)
		w.index[offset] = i
		offset += 1 + rnd.Int64N(3) // K-31
	}
	return w
}

// fail records a violation. w.mu is held.
func (w *world) fail(format string, args ...any) {
	if w.violation == nil {
		w.violation = fmt.Errorf(format, args...)
	}
}

// under calls f with the lock held.
func (w *world) under(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// from is the index of the first uncommitted record. w.mu is held.
func (w *world) from() int {
	i := slices.IndexFunc(w.log, func(m *idem.Message) bool { return m.Offset >= w.committed })
	if i < 0 {
		return len(w.log)
	}
	return i
}

func (w *world) run(ctx context.Context) {
	var all []*assignment
	for range 50 {
		a := w.assign()
		all = append(all, a)
		a.run(ctx)
		over := false
		w.under(func() { over = w.violation != nil || w.from() == len(w.log) })
		if over {
			break
		}
	}
	time.Sleep(2 * hang) // late work ends
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range all {
		a.look()
		if q := a.p.queue; !a.cut && (len(q.keyed) > 0 || q.held != 0 || q.bytes != 0) {
			w.fail("%d keys, %d messages, %d bytes are held although all is settled", len(q.keyed),
				q.held, q.bytes)
		}
	}
	if from := w.from(); from < len(w.log) {
		w.fail("committed %d of %d records in 50 assignments", from, len(w.log))
	}
	for i, event := range w.event {
		if !w.effects[event] {
			w.fail("record %d is committed and had no effect", i)
		}
	}
}

// assignment is one Partition and the handler it calls.
type assignment struct {
	*world
	p        *Partition
	cfg      Config
	inFlight map[string]bool
	last     map[string]int // by key: the last index that was settled
	reported []bool         // by index into log: reported as settled, or committed before
	low      int            // the first that is not reported
	mark     int64          // the greatest watermark seen
	closed   bool
	cut      bool // ended before all was settled
}

func (w *world) assign() *assignment {
	w.mu.Lock()
	defer w.mu.Unlock()
	cfg := Config{
		Lanes: 1 + w.rnd.IntN(5), Queue: 1 + w.rnd.IntN(20), Batch: 1 + w.rnd.IntN(8),
		QueueBytes: 600 + w.rnd.IntN(12000), BatchBytes: 1 + w.rnd.IntN(4000),
	}.withDefaults()
	a := &assignment{
		world: w, cfg: cfg, inFlight: map[string]bool{}, last: map[string]int{},
		reported: make([]bool, len(w.log)), mark: -1,
	}
	for i := range w.from() {
		a.reported[i] = true
	}
	var marks watermark = newTracker(cfg.Queue)
	if w.planted.marks != nil {
		marks = w.planted.marks(newTracker(cfg.Queue))
	}
	a.p = startWith(a, "t", 0, cfg, marks)
	return a
}

// run pushes the uncommitted records, and closes the partition when all are settled, or before.
func (a *assignment) run(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pushed := make(chan struct{})
	var closing <-chan time.Time
	var cause error
	patience := hang / 2
	a.under(func() {
		if a.rnd.IntN(2) == 0 {
			closing = time.After(time.Duration(a.rnd.IntN(20_000)) * time.Microsecond)
		}
		if a.rnd.IntN(3) == 0 {
			cause = idem.ErrPartitionLost
		}
		if a.rnd.IntN(4) == 0 {
			patience = time.Duration(a.rnd.IntN(2000)) * time.Microsecond
		}
	})
	go a.push(ctx, pushed)
	a.cut = !a.await(pushed, closing)

	closeCtx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	err := a.p.Close(closeCtx, cause)
	cancel(nil)
	<-pushed
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && !errors.Is(err, idem.ErrAbandoned) {
		a.fail("Close: %w", err)
	}
	before := a.mark
	a.look()
	a.closed = true
	if err == nil && len(a.inFlight) > 0 {
		a.fail("%d keys in flight after Close", len(a.inFlight))
	}
	if cause != nil {
		// a commit by the timer before the partition was lost
		a.committed = max(a.committed, before)
	} else {
		a.committed = max(a.committed, a.mark)
	}
}

// await reports whether all was settled in time.
func (a *assignment) await(pushed <-chan struct{}, closing <-chan time.Time) bool {
	limit := time.NewTimer(time.Hour)
	defer limit.Stop()
	for done := false; ; {
		select {
		case <-pushed:
			done, pushed = true, nil
		case <-a.p.Advanced():
		case <-a.p.Done():
			return false
		case <-closing:
			return false
		case <-limit.C:
			a.under(func() {
				a.fail("nothing moves: %d pending, watermark %d", a.p.Pending(), a.mark)
			})
			return false
		}
		a.under(a.look)
		if done && a.p.Pending() == 0 {
			synctest.Wait() // the calls return
			return true
		}
	}
}

func (a *assignment) push(ctx context.Context, pushed chan<- struct{}) {
	defer close(pushed)
	var from int
	a.under(func() { from = a.from() })
	for _, m := range a.log[from:] {
		if m.Offset%2 == 0 { // alternate between Push and Offer
			for !a.p.Offer(m) {
				select {
				case <-a.p.Room():
				case <-a.p.Done():
					return
				case <-ctx.Done():
					return
				}
			}
		} else if a.p.Push(ctx, m) != nil {
			return
		}
		var nap time.Duration
		a.under(func() {
			if a.rnd.IntN(10) == 0 {
				nap = time.Duration(a.rnd.IntN(2000)) * time.Microsecond
			}
		})
		if nap > 0 {
			time.Sleep(nap)
		}
	}
}

// look checks the invariants that are visible from outside at any time. a.mu is held, so no
// progress is reported meanwhile.
func (a *assignment) look() {
	for a.low < len(a.reported) && a.reported[a.low] {
		a.low++
	}
	next, ok := a.p.Watermark()
	switch {
	case !ok && a.mark >= 0 || ok && next < a.mark:
		a.fail("watermark goes back from %d to %d", a.mark, next)
	case ok && a.closed && next != a.mark:
		a.fail("watermark moves from %d to %d after Close (K-39)", a.mark, next)
	case ok && a.low < len(a.log) && next > a.log[a.low].Offset:
		a.fail("watermark %d is above %d, which is not settled (K-01)", next, a.log[a.low].Offset)
	}
	if ok {
		a.mark = next
	}
	q := a.p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held > a.cfg.Queue || q.marks.Pending() > a.cfg.Queue ||
		q.held > 1 && q.bytes > a.cfg.QueueBytes {
		a.fail("%d messages of %d bytes are held, %d pending, with %+v", q.held, q.bytes,
			q.marks.Pending(), a.cfg)
	}
}
