package lane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// batches is a handler that sees whole calls. It reports messages as settled one by one.
type batches struct {
	settle func(ctx context.Context, m *idem.Message) error

	mu    sync.Mutex
	calls [][]int64
	keys  map[*idem.Message]int // calls of OrderKey for each message
}

func (b *batches) Settle(ctx context.Context, msgs []*idem.Message, progress func(int)) error {
	var offsets []int64
	for _, m := range msgs {
		offsets = append(offsets, m.Offset)
	}
	b.mu.Lock()
	b.calls = append(b.calls, offsets)
	b.mu.Unlock()
	return fake(b.settle).Settle(ctx, msgs, progress)
}

func (b *batches) OrderKey(m *idem.Message) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keys == nil {
		b.keys = map[*idem.Message]int{}
	}
	b.keys[m]++
	return string(m.Key)
}

// largest returns the size of the largest call since the one with that number.
func (b *batches) largest(since int) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.calls[since:] {
		n = max(n, len(c))
	}
	return n
}

func (b *batches) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls)
}

func keyed(offset int64, key string) *idem.Message {
	m := message(offset)
	m.Key = []byte(key)
	return m
}

func lasting(d time.Duration) func(context.Context, *idem.Message) error {
	return func(context.Context, *idem.Message) error { time.Sleep(d); return nil }
}

// drained waits until the watermark covers all pushed messages.
func drained(p *Partition) {
	for p.Pending() > 0 {
		<-p.Advanced()
	}
}

// TestLanes_SlowHandler_Rule25: a key is bound to a lane only while it has events in flight, so all
// lanes have work. Keys spread by their hash keep 54 % of the lanes busy here.
func TestLanes_SlowHandler_Rule25(t *testing.T) {
	for _, keys := range []int64{100, 600} {
		synctest.Test(t, func(t *testing.T) {
			const events, lanes, each = 5000, 16, 20 * time.Millisecond
			p := start(&batches{settle: lasting(each)}, "t", 3, Config{Lanes: lanes})
			began := time.Now()
			for i := range int64(events) {
				require.NoError(t,
					p.Push(t.Context(), keyed(i, strconv.FormatInt(i*i*7919%104729%keys, 10))))
			}
			drained(p)
			ideal := events * each / lanes
			busy := float64(ideal) / float64(time.Since(began))
			t.Logf("%d keys: %.1f %% of the ideal", keys, 100*busy)
			require.Greater(t, busy, 0.95)
			require.NoError(t, closeLane(t, p, nil))
		})
	}
}

// TestLanes_BatchSize: quick events form large batches, slow ones are handled one by one, and
// events that become slow spread.
func TestLanes_BatchSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		each := 10 * time.Microsecond
		h := &batches{
			settle: func(context.Context, *idem.Message) error { time.Sleep(each); return nil },
		}
		p := start(h, "t", 3, Config{Lanes: 4, Queue: 10_000})
		fill := func() (first int) {
			first = h.count()
			for i := range int64(5000) {
				require.NoError(t, p.Push(t.Context(), keyed(i, strconv.FormatInt(i, 10))))
			}
			drained(p)
			synctest.Wait()
			return first
		}
		require.Equal(t, 512, h.largest(fill()))
		require.Len(t, h.calls[0], 1, "before anything is known")
		each = 60 * time.Millisecond
		fill()
		require.Equal(t, 1, h.largest(fill()))
		each = 10 * time.Microsecond
		fill()
		require.Equal(t, 512, h.largest(fill()))
		require.NoError(t, closeLane(t, p, nil))
	})
}

// TestLanes_BatchBytes: a batch is bounded in bytes, and a single larger message is a batch of its
// own.
func TestLanes_BatchBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		h := &batches{settle: func(context.Context, *idem.Message) error { <-gate; return nil }}
		p := start(h, "t", 3, Config{BatchBytes: 3*footprint(message(0)) + 1})
		require.NoError(t, p.Push(t.Context(), message(0)))
		synctest.Wait() // it is taken alone
		for i := range int64(8) {
			m := message(1 + i)
			if i == 4 {
				m.Value = make([]byte, 4096)
			}
			require.NoError(t, p.Push(t.Context(), m))
		}
		close(gate)
		drained(p)
		require.Equal(t, [][]int64{{0}, {1, 2, 3}, {4}, {5}, {6, 7, 8}}, h.calls)
		require.NoError(t, closeLane(t, p, nil))
	})
}

// TestLanes_WatermarkMovesWithinABatch_K01: the watermark moves with every settled message, and no
// further.
func TestLanes_WatermarkMovesWithinABatch_K01(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		h := &batches{settle: func(context.Context, *idem.Message) error { <-gate; return nil }}
		p := start(h, "t", 3, Config{})
		require.NoError(t, p.Push(t.Context(), message(0)))
		synctest.Wait()
		for i := range int64(5) {
			require.NoError(t, p.Push(t.Context(), message(1+i)))
		}
		for i := range int64(6) {
			gate <- struct{}{}
			synctest.Wait()
			next, ok := p.Watermark()
			require.True(t, ok)
			require.Equal(t, i+1, next)
			require.EqualValues(t, 5-i, p.Pending())
		}
		require.Equal(t, [][]int64{{0}, {1, 2, 3, 4, 5}}, h.calls)
		require.NoError(t, closeLane(t, p, nil))
	})
}

// TestLanes_WaitingKeyHoldsUpNoOther_Rule9_Rule30: a lane that waits keeps one event. Other lanes
// handle the events that it had taken with that one, or the lane itself does after the wait.
func TestLanes_WaitingKeyHoldsUpNoOther_Rule9_Rule30(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := true
		var mu sync.Mutex
		h := &batches{settle: func(_ context.Context, m *idem.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if busy && string(m.Key) == "busy" {
				return &idem.WaitError{Err: idem.ErrBusy, After: time.Minute}
			}
			return nil
		}}
		p := start(h, "t", 3, Config{Lanes: 2, Queue: 500})
		var keys []string
		for i := range 100 {
			keys = append(keys, strconv.Itoa(i))
			if i%20 == 10 {
				keys[i] = "busy"
			}
		}
		addAll(p, keys) // all at once, so that the first batch is a large one
		synctest.Wait()
		require.Greater(t, h.largest(0), 20)
		p.queue.mu.Lock()
		require.Equal(t, 5, p.queue.held, "only the events of the key wait")
		p.queue.mu.Unlock()
		next, _ := p.Watermark()
		require.EqualValues(t, 10, next)
		mu.Lock()
		busy = false
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, p.Pending())
		require.NoError(t, closeLane(t, p, nil))
	})
}

// TestLanes_GivenBackWakesALane_Rule25: a returned event wakes a lane at once.
func TestLanes_GivenBackWakesALane_Rule25(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &batches{settle: func(_ context.Context, m *idem.Message) error {
			if string(m.Key) == "busy" {
				time.Sleep(time.Second)
				return &idem.WaitError{Err: idem.ErrBusy, After: time.Hour}
			}
			return nil
		}}
		p := start(h, "t", 3, Config{Lanes: 2})
		addAll(p, []string{"busy", "x", "y"})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, p.queue.held)
		require.NoError(t, closeLane(t, p, nil))
	})
}

// TestLanes_AllBegin: no lane sleeps while there is work, for each order of the work.
func TestLanes_AllBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &batches{settle: lasting(time.Second)}
		p := start(h, "t", 3, Config{Lanes: 4})
		addAll(p, []string{"a", "b", "c", "", "", "a"})
		synctest.Wait()
		require.Equal(t, 4, h.count())
		drained(p)
		require.NoError(t, closeLane(t, p, nil))
	})
}

// addAll adds messages with these keys while all lanes sleep, as events that are known to be quick.
func addAll(p *Partition, keys []string) {
	synctest.Wait()
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	p.queue.perEvent = 0
	for i, key := range keys {
		p.queue.add(keyed(int64(i), key), 100, key)
	}
}

// TestLanes_WatermarkKeepsUp: keys with many events do not hold back the watermark. Events settled
// beyond it are delivered again after a stop. Lanes that serve all keys in turn would leave 3,000
// such events here.
func TestLanes_WatermarkKeepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *Partition
		beyond := 0
		h := &batches{settle: func(context.Context, *idem.Message) error {
			time.Sleep(20 * time.Millisecond)
			p.queue.mu.Lock()
			defer p.queue.mu.Unlock()
			beyond = max(beyond, p.queue.marks.Pending()-p.queue.held)
			return nil
		}}
		p = start(h, "t", 3, Config{Lanes: 16})
		rnd := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 10, 599)
		for i := range int64(10_000) {
			require.NoError(t, p.Push(t.Context(), keyed(i, strconv.FormatUint(rnd.Uint64(), 10))))
		}
		drained(p)
		t.Logf("at most %d settled beyond the watermark", beyond)
		require.Less(t, beyond, 200)
		require.NoError(t, closeLane(t, p, nil))
	})
}

// TestLanes_LookAhead: one event that hangs stops its partition at the bound, not before, and no
// other partition. Memory does not grow behind it.
func TestLanes_LookAhead(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			const queue, behind = 500, 1_000_000
			gate := make(chan struct{})
			h := &batches{settle: func(_ context.Context, m *idem.Message) error {
				if m.Offset == 0 {
					<-gate
				}
				return nil
			}}
			p := start(h, "t", 3, Config{Lanes: lanes, Queue: queue})
			var pushed int64
			stop, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				var err error
				for ; err == nil && pushed < behind; pushed++ {
					err = p.Push(stop, keyed(pushed, strconv.FormatInt(pushed%50, 10)))
				}
				done <- err
			}()
			synctest.Wait() // every goroutine waits, the pusher for room
			require.EqualValues(t, queue, pushed)
			require.Equal(t, queue, p.Pending())
			if lanes == 1 {
				require.Equal(t, queue, p.queue.held)
			} else {
				require.Equal(t, queue/50, p.queue.held, "all but what waits for the key")
				require.Len(t, p.queue.keyed, 1)
			}

			other := start(instant{}, "t", 4, Config{Lanes: lanes, Queue: queue})
			for i := range int64(10_000) {
				require.NoError(t, other.Push(t.Context(), keyed(i, strconv.FormatInt(i, 10))))
			}
			drained(other)
			require.NoError(t, closeLane(t, other, nil))
			require.Equal(t, queue, p.Pending())
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
			close(gate)
			drained(p)
			require.NoError(t, closeLane(t, p, nil))
		})
	}
}

// TestLanes_OrderKeyOnce: the key of a message is computed once, however often it is offered, and
// not at all with one lane.
func TestLanes_OrderKeyOnce(t *testing.T) {
	for _, lanes := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			h := &batches{settle: func(context.Context, *idem.Message) error { <-gate; return nil }}
			p := start(h, "t", 3, Config{Lanes: lanes, Queue: 2})
			for i := range int64(2) {
				require.NoError(t, p.Push(t.Context(), keyed(i, "k")))
			}
			m := keyed(2, "k")
			for range 10 {
				require.False(t, p.Offer(m))
			}
			close(gate)
			require.NoError(t, p.Push(t.Context(), m))
			drained(p)
			if lanes == 1 {
				require.Empty(t, h.keys)
			} else {
				require.Len(t, h.keys, 3)
				require.Equal(t, 1, h.keys[m])
			}
			require.NoError(t, closeLane(t, p, nil))
		})
	}
}

// TestLanes_Fatal: the first lane that cannot continue ends the partition. The others get its error
// as their cause, Close waits for them, and their errors do not hide the first.
func TestLanes_Fatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 2)
		h := &batches{settle: func(ctx context.Context, m *idem.Message) error {
			if m.Offset == 2 {
				time.Sleep(time.Second)
				return idem.ErrNoProducer
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			time.Sleep(3 * time.Second)
			return fmt.Errorf("%w: %w", idem.ErrStopping, context.Cause(ctx))
		}}
		began := time.Now()
		p := start(h, "t", 3, Config{Lanes: 4})
		for i := range int64(3) {
			require.NoError(t, p.Push(t.Context(), keyed(i, strconv.FormatInt(i, 10))))
		}
		require.ErrorIs(t, <-causes, idem.ErrNoProducer)
		require.ErrorIs(t, <-causes, idem.ErrNoProducer)
		require.ErrorIs(t, p.Push(t.Context(), message(3)), ErrClosed)
		require.NoError(t, p.Err(), "lanes still run")
		<-p.Done()
		require.Equal(t, 4*time.Second, time.Since(began))
		require.ErrorIs(t, p.Err(), idem.ErrNoProducer)
		require.NoError(t, closeLane(t, p, nil))
		require.ErrorIs(t, p.Err(), idem.ErrNoProducer)
		_, ok := p.Watermark()
		require.False(t, ok)
	})
}

// TestLanes_FatalWhileStopping: a Close does not hide an error that would have ended the partition.
func TestLanes_FatalWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &batches{settle: func(ctx context.Context, m *idem.Message) error {
			<-ctx.Done()
			if m.Offset == 0 {
				return context.Cause(ctx)
			}
			time.Sleep(time.Second)
			return idem.ErrNoProducer
		}}
		p := start(h, "t", 3, Config{Lanes: 2})
		addAll(p, []string{"a", "b"})
		synctest.Wait()
		require.NoError(t, closeLane(t, p, nil))
		require.ErrorIs(t, p.Err(), idem.ErrNoProducer)
	})
}

// TestLanes_Close_Rule13_K07: Close waits for all lanes, drops the messages that no lane has begun,
// and reports an abandoned handler of any lane.
func TestLanes_Close_Rule13_K07(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &batches{settle: func(ctx context.Context, m *idem.Message) error {
			switch m.Offset {
			case 0:
				time.Sleep(5 * time.Second)
			case 1: // the error of a Processor
				<-ctx.Done()
				time.Sleep(time.Second)
				return fmt.Errorf("%w: %w", context.Cause(ctx), idem.ErrAbandoned)
			}
			return nil
		}}
		p := start(h, "t", 3, Config{Lanes: 2})
		for i := range int64(3) {
			require.NoError(t, p.Push(t.Context(), keyed(i, strconv.FormatInt(i, 10))))
		}
		synctest.Wait()
		began := time.Now()
		require.ErrorIs(t, closeLane(t, p, nil), idem.ErrAbandoned)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.NoError(t, p.Err(), "an end in order")
		require.Len(t, h.calls, 2)
		next, ok := p.Watermark()
		require.True(t, ok)
		require.EqualValues(t, 1, next)
	})
}

// TestLanes_Stalled_K13: progress of other lanes beside an event that hangs does not count.
func TestLanes_Stalled_K13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		h := &batches{settle: func(_ context.Context, m *idem.Message) error {
			if string(m.Key) == "hangs" {
				<-gate
			}
			return nil
		}}
		p := start(h, "t", 3, Config{Lanes: 2})
		require.NoError(t, p.Push(t.Context(), keyed(0, "a")))
		synctest.Wait()
		_, ok := p.Stalled()
		require.False(t, ok)
		require.NoError(t, p.Push(t.Context(), keyed(1, "hangs")))
		for i := range int64(60) {
			time.Sleep(time.Second)
			require.NoError(t, p.Push(t.Context(), keyed(2+i, "b")))
		}
		synctest.Wait()
		require.Equal(t, 1, p.queue.held)
		since, ok := p.Stalled()
		require.True(t, ok)
		require.Equal(t, time.Minute, time.Since(since))
		close(gate)
		synctest.Wait()
		_, ok = p.Stalled()
		require.False(t, ok)
		require.NoError(t, closeLane(t, p, nil))
	})
}

// TestLanes_UntoldIsNotSettled: a message that the processor does not report is not settled, even
// if the call returns nil.
func TestLanes_UntoldIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(forgets{}, "t", 3, Config{Lanes: 2})
		require.NoError(t, p.Push(t.Context(), message(0)))
		<-p.Done()
		require.ErrorContains(t, p.Err(), "settled 0 of 1")
		_, ok := p.Watermark()
		require.False(t, ok)
		require.NoError(t, closeLane(t, p, nil))
	})
}

type forgets struct{ instant }

func (forgets) Settle(context.Context, []*idem.Message, func(int)) error { return nil }

// TestLanes_ManyPushers: the bounds hold for several pushers, and the key is computed once.
func TestLanes_ManyPushers(t *testing.T) {
	h := &batches{settle: func(context.Context, *idem.Message) error { return nil }}
	p := start(h, "t", 3, Config{Lanes: 3, Queue: 2})
	var pushers sync.WaitGroup
	for n := range int64(4) {
		pushers.Go(func() {
			for i := range int64(500) {
				if p.Push(t.Context(), keyed(n*1000+i, "k")) != nil {
					return
				}
			}
		})
	}
	pushers.Wait()
	drained(p)
	require.NoError(t, closeLane(t, p, nil))
	require.Len(t, h.keys, 2000)
	for m, n := range h.keys {
		require.Equal(t, 1, n, "message %d", m.Offset)
	}
}
