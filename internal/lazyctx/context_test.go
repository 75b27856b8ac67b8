package lazyctx_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/lazyctx"
)

type valueKey struct{ name string }

var (
	errTimeout = errors.New("handler timeout")
	errLost    = errors.New("claim lost")
)

const timeout = 10*time.Second + 500*time.Millisecond // between two steps of the tests

// rig is a context under test with all that was derived from it.
type rig struct {
	parent    context.Context
	endParent context.CancelCauseFunc
	ctx       context.Context
	cancel    func()
	seen      []context.Context // ctx and the contexts derived from it
	ends      []func()
	stops     []func() bool

	mu    sync.Mutex
	fired []string // functions of AfterFunc that have run
}

// start makes a context by make from a parent with an optional deadline.
func start(parentLimit time.Duration, make func(context.Context) (context.Context, func())) *rig {
	r := &rig{}
	base := context.WithValue(context.Background(), valueKey{"base"}, "base")
	if parentLimit > 0 {
		limited, end := context.WithTimeout(base, parentLimit)
		r.ends, base = append(r.ends, end), limited
	}
	r.parent, r.endParent = context.WithCancelCause(base)
	r.ctx, r.cancel = make(r.parent)
	r.seen = []context.Context{r.ctx}
	return r
}

func (r *rig) close() {
	r.cancel()
	r.endParent(nil)
	for _, end := range r.ends {
		end()
	}
}

func standard(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithTimeoutCause(parent, timeout, errTimeout)
	return ctx, cancel
}

// lazy makes a context with an owner that watches the deadline, as the engine does.
func lazy(parent context.Context) (context.Context, func()) {
	ctx := lazyctx.WithTimeoutCause(parent, timeout, errTimeout)
	timer, quit := time.NewTimer(timeout), make(chan struct{})
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-parent.Done():
		case <-quit:
			return
		}
		ctx.Expire()
	}()
	return ctx, sync.OnceFunc(func() { ctx.Cancel(); close(quit) })
}

// steps are the possible steps of a handler, its engine and time. from chooses a context.
var steps = []struct {
	name string
	do   func(r *rig, from int)
}{
	{"wait", func(*rig, int) { time.Sleep(4 * time.Second) }},
	{"cancel", func(r *rig, _ int) { r.cancel() }},
	{"parent lost", func(r *rig, _ int) { r.endParent(errLost) }},
	{"done", func(r *rig, from int) { r.seen[from].Done() }},
	{"err", func(r *rig, from int) { _ = r.seen[from].Err() }},
	{"WithCancel", derive(func(c context.Context) (context.Context, func()) {
		d, cancel := context.WithCancel(c)
		return d, cancel
	})},
	{"WithTimeout shorter", derive(func(c context.Context) (context.Context, func()) {
		d, cancel := context.WithTimeout(c, 3*time.Second)
		return d, cancel
	})},
	{"WithTimeout longer", derive(func(c context.Context) (context.Context, func()) {
		d, cancel := context.WithTimeoutCause(c, time.Minute, errors.New("a minute"))
		return d, cancel
	})},
	{"WithValue", derive(func(c context.Context) (context.Context, func()) {
		return context.WithValue(c, valueKey{"own"}, "own"), func() {}
	})},
	{"WithoutCancel", derive(func(c context.Context) (context.Context, func()) {
		return context.WithoutCancel(c), func() {}
	})},
	{"embedded", derive(func(c context.Context) (context.Context, func()) {
		return struct{ context.Context }{c}, func() {}
	})},
	{"AfterFunc", func(r *rig, from int) {
		name := fmt.Sprint(len(r.stops))
		r.stops = append(r.stops, context.AfterFunc(r.seen[from], func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.fired = append(r.fired, name)
		}))
	}},
	{"stop AfterFunc", func(r *rig, from int) {
		if len(r.stops) > 0 {
			stopped := r.stops[from%len(r.stops)]()
			r.mu.Lock()
			defer r.mu.Unlock()
			r.fired = append(r.fired, fmt.Sprint("stopped ", stopped))
		}
	}},
}

func derive(fn func(context.Context) (context.Context, func())) func(*rig, int) {
	return func(r *rig, from int) {
		d, end := fn(r.seen[from])
		r.seen, r.ends = append(r.seen, d), append(r.ends, end)
	}
}

// state is all that a handler can see. Without look, the contexts themselves are not touched.
func (r *rig) state(look bool) string {
	var b strings.Builder
	if look {
		for i, c := range r.seen {
			deadline, ok := c.Deadline()
			fmt.Fprintf(&b, "%d: err %v, cause %v, deadline %v %v, base %v, own %v\n", i, c.Err(),
				context.Cause(c), deadline.UnixNano(), ok, c.Value(valueKey{"base"}), c.Value(valueKey{"own"}))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]int{} // functions of one moment run in any order
	for _, f := range r.fired {
		counts[f]++
	}
	fmt.Fprint(&b, counts)
	return b.String()
}

// closed tells which contexts have a closed channel. The call builds the context.
func (r *rig) closed() (closed []bool) {
	for _, c := range r.seen {
		select {
		case <-c.Done():
			closed = append(closed, true)
		default:
			closed = append(closed, false)
		}
	}
	return closed
}

// play carries out the same steps on both contexts and compares them, after every step or at the
// end only.
func play(t *testing.T, parentLimit time.Duration, sequence [][2]int, every bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		want, got := start(parentLimit, standard), start(parentLimit, lazy)
		defer want.close()
		defer got.close()
		var names []string
		for i, s := range sequence {
			step := steps[s[0]]
			from := s[1] % len(want.seen)
			names = append(names, fmt.Sprintf("%s %d", step.name, from))
			if step.name == "wait" {
				step.do(nil, 0)
			} else {
				step.do(want, from)
				step.do(got, from)
			}
			synctest.Wait()
			look := every || i == len(sequence)-1
			require.Equal(t, want.state(look), got.state(look), "%v", names)
		}
		require.Equal(t, want.closed(), got.closed(), "%v", names)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, want.state(true), got.state(true), "%v, then a while", names)
		require.Equal(t, want.closed(), got.closed(), "%v, then a while", names)
	})
}

func step(name string) int {
	for i := range steps {
		if steps[i].name == name {
			return i
		}
	}
	panic(name)
}

// Every two ends in every order, with every way to derive a context before, between or after them.
func TestContext_EqualsStandard(t *testing.T) {
	ends := [][]string{
		{}, {"cancel"}, {"parent lost"}, {"wait", "wait", "wait"}, {"wait"},
		{"wait", "wait", "wait", "cancel"}, {"wait", "wait", "wait", "parent lost"},
		{"cancel", "parent lost"}, {"parent lost", "cancel"}, {"cancel", "wait", "wait", "wait"},
		{"parent lost", "wait", "wait", "wait"},
	}
	for _, limit := range []time.Duration{0, 5 * time.Second, time.Hour} {
		for _, end := range ends {
			for s := range steps {
				for at := 0; at <= len(end); at++ {
					var sequence [][2]int
					for i, name := range end {
						if i == at {
							sequence = append(sequence, [2]int{s, 0})
						}
						sequence = append(sequence, [2]int{step(name), 0})
					}
					if at == len(end) {
						sequence = append(sequence, [2]int{s, 0})
					}
					play(t, limit, sequence, false)
					play(t, limit, sequence, true)
				}
			}
		}
	}
}

func TestContext_EqualsStandard_Random(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		sequence := make([][2]int, 1+random.IntN(14))
		for i := range sequence {
			sequence[i] = [2]int{random.IntN(len(steps)), random.IntN(1000)}
		}
		limits := []time.Duration{0, 0, 5 * time.Second, time.Hour}
		play(t, limits[random.IntN(len(limits))], sequence, random.IntN(2) == 0)
	}
}

// A handler that only looks at the error and the values costs one allocation.
func TestContext_Unused_OneAllocation(t *testing.T) {
	parent, end := context.WithCancel(t.Context())
	defer end()
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		c := lazyctx.WithTimeoutCause(parent, time.Minute, errTimeout)
		if c.Err() != nil || context.Cause(c) != nil || c.Value(valueKey{"base"}) != nil {
			t.Error("ended")
		}
		c.Cancel()
	}), 1.0)
}

// The first end counts, also if no call has seen it before Cancel.
func TestContext_CancelAfterEnd(t *testing.T) {
	parent, end := context.WithCancelCause(t.Context())
	c := lazyctx.WithTimeoutCause(parent, time.Minute, errTimeout)
	end(errLost)
	c.Cancel()
	require.ErrorIs(t, context.Cause(c), errLost)

	c = lazyctx.WithTimeoutCause(t.Context(), 0, errTimeout)
	c.Cancel()
	require.ErrorIs(t, c.Err(), context.DeadlineExceeded)
	require.ErrorIs(t, context.Cause(c), errTimeout)
}

// The end of the parent is visible at once, as in package context.
func TestContext_EndsWithParentAtOnce(t *testing.T) {
	for range 100 {
		parent, end := context.WithCancelCause(t.Context())
		c := lazyctx.WithTimeoutCause(parent, time.Minute, errTimeout)
		end(errLost)
		require.ErrorIs(t, c.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(c), errLost)
		c.Cancel()
	}
}

// All methods at once, under the race detector: the end that one goroutine saw stays.
func TestContext_Concurrent(t *testing.T) {
	for i := range 300 {
		parent, end := context.WithCancelCause(t.Context())
		c := lazyctx.WithTimeoutCause(parent, time.Duration(i%3)*50*time.Microsecond, errTimeout)
		var group sync.WaitGroup
		for _, fn := range []func(){
			c.Expire, c.Cancel, func() { end(errLost) },
			func() { <-c.Done() },
			func() {
				d, cancel := context.WithTimeout(c, time.Hour)
				defer cancel()
				<-d.Done()
				if !errors.Is(d.Err(), c.Err()) || !errors.Is(context.Cause(d), context.Cause(c)) {
					t.Errorf("%v, %v, of the parent %v, %v", d.Err(), context.Cause(d), c.Err(), context.Cause(c))
				}
			},
			func() {
				first := c.Err()
				for range 50 {
					if err := c.Err(); first != nil && !errors.Is(err, first) {
						t.Errorf("%v after %v", err, first)
					}
				}
			},
		} {
			group.Go(fn)
		}
		group.Wait()
		require.Error(t, c.Err())
	}
}

func TestContext_String(t *testing.T) {
	c := lazyctx.WithTimeoutCause(t.Context(), time.Minute, errTimeout)
	require.Contains(t, fmt.Sprint(c), ".WithDeadline(")
}
