package lane

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// fake stands for a Processor.
type fake func(ctx context.Context, m *idem.Message) error

func (f fake) Settle(ctx context.Context, msgs []*idem.Message, progress func(int)) error {
	for i, m := range msgs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f(ctx, m); err != nil {
			return err
		}
		progress(i + 1)
	}
	return nil
}

func (fake) OrderKey(m *idem.Message) string { return string(m.Key) }

func message(offset int64) *idem.Message {
	return &idem.Message{Topic: "t", Partition: 3, Offset: offset, Value: []byte("value")}
}

func closeLane(t *testing.T, p *Partition, cause error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return p.Close(ctx, cause)
}

func TestPartition_Progress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(fake(func(context.Context, *idem.Message) error { return nil }), "t", 3, Config{})
		_, ok := p.Progress()
		require.False(t, ok, "no record is settled")
		for i := range int64(3) {
			require.NoError(t, p.Push(t.Context(), &idem.Message{Topic: "t", Partition: 3, Offset: 10 + i, Time: time.UnixMilli(1000 + i)}))
		}
		synctest.Wait()
		got, ok := p.Progress()
		require.True(t, ok)
		require.Equal(t, dedup.Progress{Topic: "t", Partition: 3, Next: 13, Time: time.UnixMilli(1002).UTC()}, got)
		require.NoError(t, closeLane(t, p, nil))
	})
}

func TestPartition_OrderAndWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []int64
		p := start(fake(func(_ context.Context, m *idem.Message) error {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, m.Offset)
			return nil
		}), "t", 3, Config{Queue: 4, Batch: 3})
		var want []int64
		for i := range int64(100) {
			want = append(want, i*7)
			require.NoError(t, p.Push(t.Context(), message(i*7)))
		}
		synctest.Wait()
		require.Equal(t, want, seen)
		next, ok := p.Watermark()
		require.True(t, ok)
		require.EqualValues(t, 99*7+1, next, "the last delivery plus one, gaps or not (K-31)")
		require.Zero(t, p.Pending())
		_, stalled := p.Stalled()
		require.False(t, stalled)
		select {
		case <-p.Advanced():
		default:
			t.Fatal("no signal that the watermark moved")
		}
		require.NoError(t, closeLane(t, p, nil))
		require.NoError(t, p.Err())
		require.ErrorIs(t, p.Push(t.Context(), message(1000)), ErrClosed)
	})
}

// TestPartition_BackPressure: Push blocks at the bound of messages, and of bytes.
func TestPartition_BackPressure(t *testing.T) {
	for name, cfg := range map[string]Config{"messages": {Queue: 2},
		"bytes": {QueueBytes: 2*footprint(message(0)) + 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				p := start(fake(func(context.Context, *idem.Message) error { <-gate; return nil }),
					"t", 3, cfg)
				require.NoError(t, p.Push(t.Context(), message(0)))
				require.NoError(t, p.Push(t.Context(), message(1)))
				require.False(t, p.Offer(message(2)))

				pushed := make(chan error, 2)
				for i := range int64(2) { // two pushers: each must get its place
					go func() { pushed <- p.Push(context.Background(), message(2+i)) }()
				}
				synctest.Wait()
				require.Empty(t, pushed)
				gate <- struct{}{}
				synctest.Wait()
				require.Len(t, pushed, 1)
				gate <- struct{}{}
				synctest.Wait()
				require.Len(t, pushed, 2)

				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.ErrorIs(t, p.Push(ctx, message(9)), context.DeadlineExceeded)
				close(gate)
				require.NoError(t, closeLane(t, p, nil))
			})
		})
	}
}

func TestPartition_TooLargeForTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(fake(func(context.Context, *idem.Message) error { return nil }), "t", 3,
			Config{QueueBytes: 1})
		for i := range int64(3) {
			require.NoError(t, p.Push(t.Context(), message(i)))
		}
		require.NoError(t, closeLane(t, p, nil))
	})
}

// TestPartition_Close_Rule13: no new work begins, Close waits for running work, and the watermark
// covers that work.
func TestPartition_Close_Rule13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		p := start(fake(func(context.Context, *idem.Message) error {
			runs++
			time.Sleep(5 * time.Second)
			return nil
		}), "t", 3, Config{})
		for i := range int64(3) {
			require.NoError(t, p.Push(t.Context(), message(i)))
		}
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, closeLane(t, p, nil))
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Equal(t, 1, runs)
		next, ok := p.Watermark()
		require.True(t, ok)
		require.EqualValues(t, 1, next)
	})
}

// TestPartition_CloseGivesUp_K07: Close leaves a worker that does not end. Work that this worker
// finishes later does not move the watermark (K-39).
func TestPartition_CloseGivesUp_K07(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		p := start(fake(func(context.Context, *idem.Message) error { <-gate; return nil }), "t", 3,
			Config{})
		require.NoError(t, p.Push(t.Context(), message(0)))
		synctest.Wait() // it runs
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, p.Close(ctx, nil), idem.ErrAbandoned)
		close(gate)
		<-p.Done()
		_, ok := p.Watermark()
		require.False(t, ok, "a late finish moved the watermark of a closed lane")
	})
}

func TestPartition_CausesReachTheHandler(t *testing.T) {
	for _, cause := range []error{nil, idem.ErrPartitionLost} {
		synctest.Test(t, func(t *testing.T) {
			got := make(chan error, 1)
			p := start(fake(func(ctx context.Context, _ *idem.Message) error {
				<-ctx.Done()
				got <- context.Cause(ctx)
				return context.Cause(ctx)
			}), "t", 3, Config{})
			require.NoError(t, p.Push(t.Context(), message(0)))
			synctest.Wait()
			require.NoError(t, closeLane(t, p, cause))
			want := cause
			if want == nil {
				want = idem.ErrStopping
			}
			require.ErrorIs(t, <-got, want)
			require.NoError(t, p.Err(), "an end in order")
		})
	}
}

// TestPartition_Fatal: the owner learns that the lane stopped by itself, and no Push waits for
// ever.
func TestPartition_Fatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(fake(func(context.Context, *idem.Message) error {
			time.Sleep(time.Second)
			return idem.ErrNoProducer
		}), "t", 3, Config{Queue: 1})
		require.NoError(t, p.Push(t.Context(), message(0)))
		require.ErrorIs(t, p.Push(t.Context(), message(1)), ErrClosed)
		<-p.Done()
		require.ErrorIs(t, p.Err(), idem.ErrNoProducer)
		_, ok := p.Watermark()
		require.False(t, ok)
		require.NoError(t, closeLane(t, p, nil))
		require.ErrorIs(t, p.Err(), idem.ErrNoProducer)
	})
}

// TestPartition_Waits: a WaitError does not stop the partition, and a stop does not wait for the
// pause to end.
func TestPartition_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		p := start(fake(func(context.Context, *idem.Message) error {
			if calls++; calls < 4 {
				return &idem.WaitError{Err: dedup.ErrUnavailable, After: time.Second}
			}
			return nil
		}), "t", 3, Config{})
		began := time.Now()
		require.NoError(t, p.Push(t.Context(), message(0)))
		<-p.Advanced()
		require.Equal(t, 3*time.Second, time.Since(began))
		require.NoError(t, closeLane(t, p, nil))

		p = start(fake(func(context.Context, *idem.Message) error {
			return &idem.WaitError{Err: idem.ErrBusy, After: time.Hour}
		}), "t", 3, Config{})
		require.NoError(t, p.Push(t.Context(), message(0)))
		synctest.Wait()
		began = time.Now()
		require.NoError(t, closeLane(t, p, nil))
		require.Zero(t, time.Since(began))
		require.NoError(t, p.Err())
	})
}

// TestPartition_Stalled_K13: the time counts from the first message after an idle time, not from
// the last work before it.
func TestPartition_Stalled_K13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		p := start(fake(func(context.Context, *idem.Message) error { <-gate; return nil }), "t", 3,
			Config{})
		time.Sleep(time.Hour)
		require.NoError(t, p.Push(t.Context(), message(0)))
		time.Sleep(time.Minute)
		require.NoError(t, p.Push(t.Context(), message(1)))
		since, ok := p.Stalled()
		require.True(t, ok)
		require.Equal(t, time.Minute, time.Since(since))
		gate <- struct{}{}
		synctest.Wait()
		since, ok = p.Stalled()
		require.True(t, ok)
		require.Zero(t, time.Since(since))
		close(gate)
		require.NoError(t, closeLane(t, p, nil))
	})
}

// TestPartition_AbandonedHandler_K07 uses a real Processor: the handler ignores its context; Close
// returns within the grace and an error says so.
func TestPartition_AbandonedHandler_K07(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := idem.NewRouter()
		r.NotFound(func(context.Context, *idem.Message) error { <-gate; return nil })
		idem.On(r, "other", func(context.Context, idem.Event[int]) error { return nil },
			idem.Type(idem.Fixed("x")))
		proc, err := idem.NewProcessor(r, idem.Config{
			Scope: "g", Store: noStore{}, BusyWait: idem.Forever, Grace: 10 * time.Second,
		})
		require.NoError(t, err)
		p := New(proc, "t", 3, Config{})
		require.NoError(t, p.Push(t.Context(), message(0)))
		synctest.Wait()
		began := time.Now()
		err = closeLane(t, p, nil)
		require.ErrorIs(t, err, idem.ErrAbandoned)
		require.Equal(t, 10*time.Second, time.Since(began))
		_, ok := p.Watermark()
		require.False(t, ok)
		require.ErrorIs(t, proc.Close(), idem.ErrAbandoned)
		close(gate)
		synctest.Wait()
	})
}

// noStore is a store that no test calls.
type noStore struct{ dedup.Store }
