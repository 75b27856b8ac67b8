package consumer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// TestHandler_CommitsAtTheEnd_K03: handled events are committed before ConsumeClaim returns,
// without regard to the timer.
func TestHandler_CommitsAtTheEnd_K03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, Config{CommitInterval: time.Hour}, func(context.Context, *idem.Message) error { return nil })
		ctx, cancel := context.WithCancelCause(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
		require.NoError(t, h.Setup(sess))
		claim := newFakeClaim("t", 0, 10)
		run := consume(h, sess, claim)
		for i := range int64(1000) {
			claim.messages <- claim.record(i * 3)
		}
		synctest.Wait()
		require.Zero(t, sess.offset("t", 0))
		cancel(sarama.ErrRebalanceInProgress)
		<-run.done
		require.NoError(t, run.err)
		require.EqualValues(t, 999*3+1, sess.offset("t", 0), "before ConsumeClaim returned")
		require.NoError(t, h.Cleanup(sess))
		require.NoError(t, h.Close())
	})
}

// unfinished has the offsets of the unfinished events of a partition.
type unfinished struct {
	mu      sync.Mutex
	offsets map[int64]bool
	end     int64 // behind the last record
}

func (u *unfinished) begin(offset int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.offsets[offset], u.end = true, offset+1
}

func (u *unfinished) finish(offset int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.offsets, offset)
}

// below returns the unfinished offsets below a mark.
func (u *unfinished) below(mark int64) (all []int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for offset := range u.offsets {
		if offset < mark {
			all = append(all, offset)
		}
	}
	return all
}

// TestHandler_NeverAheadOfTheHandlers_K01: no mark is beyond an event that is not finished, at any
// time. With lanes, events finish in another order than that of their offsets.
func TestHandler_NeverAheadOfTheHandlers_K01(t *testing.T) {
	for _, lanes := range []int{1, 16} {
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			synctest.Test(t, func(t *testing.T) { neverAhead(t, lanes, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func neverAhead(t *testing.T, lanes int, rnd *rand.Rand) {
	const partitions = 4
	var open [partitions]*unfinished
	delays := make([]time.Duration, 64)
	for i := range delays {
		delays[i] = time.Duration(rnd.Int64N(int64(200 * time.Millisecond)))
	}
	var overtook atomic.Int64 // events that finished before an earlier one
	h := newHandler(t, Config{CommitInterval: 10 * time.Millisecond, Lanes: lanes}, func(_ context.Context, m *idem.Message) error {
		time.Sleep(delays[int(m.Offset)%len(delays)])
		of := open[m.Partition]
		if len(of.below(m.Offset)) > 0 {
			overtook.Add(1)
		}
		of.finish(m.Offset)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	sess := newFakeSession(ctx, map[string][]int32{"t": {0, 1, 2, 3}})
	var marks atomic.Int64
	sess.marked = func(p runner.TopicPartition, offset int64) {
		marks.Add(1)
		if ahead := open[p.Partition].below(offset); len(ahead) > 0 {
			t.Errorf("partition %d: marked %d, not finished: %d", p.Partition, offset, ahead)
		}
	}
	require.NoError(t, h.Setup(sess))
	var wg sync.WaitGroup
	for id := range int32(partitions) {
		open[id] = &unfinished{offsets: map[int64]bool{}}
		claim := newFakeClaim("t", id, 200)
		offset := int64(0)
		for range 200 {
			m := claim.record(offset)
			m.Key = fmt.Append(nil, rnd.IntN(100))
			open[id].begin(offset)
			claim.messages <- m
			offset += 1 + rnd.Int64N(4)
		}
		wg.Go(func() {
			if err := h.ConsumeClaim(sess, claim); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(time.Minute)
	cancel()
	wg.Wait()
	require.Greater(t, marks.Load(), int64(50))
	require.Equal(t, lanes > 1, overtook.Load() > 0)
	for id := range int32(partitions) {
		require.Equal(t, open[id].end, sess.offset("t", id))
	}
	require.NoError(t, h.Cleanup(sess))
	require.NoError(t, h.Close())
}

// TestHandler_CooperativeRevoke_K10: only the claim's channel shows the revoke, and the session
// lives on. The running handler finishes (rule 13), no buffered message begins (K-09), and the
// other partition goes on.
func TestHandler_CooperativeRevoke_K10(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs [2]atomic.Int64
		h := newHandler(t, Config{}, func(_ context.Context, m *idem.Message) error {
			runs[m.Partition].Add(1)
			time.Sleep(4 * time.Second)
			return nil
		})
		sess := newFakeSession(t.Context(), map[string][]int32{"t": {0, 1}})
		require.NoError(t, h.Setup(sess))
		kept, revoked := newFakeClaim("t", 0, 1100), &pausingClaim{fakeClaim: newFakeClaim("t", 1, 1100)}
		running0, running1 := consume(h, sess, kept), consume(h, sess, revoked)
		for i := range int64(1100) { // more than the lane takes: the pump must see the end behind them
			kept.messages <- kept.record(i)
			revoked.messages <- revoked.record(i)
		}
		time.Sleep(time.Second)
		require.True(t, revoked.everPaused(), "nobody stopped the fetching")
		close(revoked.messages)
		began := time.Now()
		<-running1.done
		require.NoError(t, running1.err)
		require.Equal(t, 3*time.Second, time.Since(began), "as long as the running handler, no longer")
		require.EqualValues(t, 1, runs[1].Load())
		require.EqualValues(t, 1, sess.offset("t", 1))
		require.False(t, revoked.IsPaused(), "left paused")

		time.Sleep(10 * time.Second)
		require.False(t, running0.ended())
		require.Greater(t, runs[0].Load(), int64(2))
		close(kept.messages)
		<-running0.done
		require.NoError(t, closeAll(h, sess))
	})
}

// K-08: an event that waits for its next attempt does not hold up a rebalance. The handler asks for
// a pause of four seconds, and the partition moves in the middle of it.
func TestHandler_BackOffEndsWithTheClaim_K08(t *testing.T) {
	for name, cooperative := range map[string]bool{"all partitions move": false, "this partition moves": true} {
		for _, lanes := range []int{1, 4} {
			t.Run(fmt.Sprint(name, ", lanes ", lanes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var runs atomic.Int64
					h := newHandler(t, Config{Lanes: lanes}, func(context.Context, *idem.Message) error {
						runs.Add(1)
						return idem.RetryAfter(4*time.Second, errTest)
					})
					ctx, rebalance := context.WithCancel(t.Context())
					sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
					require.NoError(t, h.Setup(sess))
					claim := newFakeClaim("t", 0, 10)
					claim.messages <- claim.record(0)
					r := consume(h, sess, claim)
					time.Sleep(time.Second)
					require.False(t, r.ended())
					require.EqualValues(t, 1, runs.Load())
					began := time.Now()
					if cooperative {
						close(claim.messages)
					} else {
						rebalance()
					}
					<-r.done
					require.NoError(t, r.err)
					require.Less(t, time.Since(began), 200*time.Millisecond)
					require.Zero(t, sess.offset("t", 0), "the event is delivered again")
					rebalance()
					require.NoError(t, closeAll(h, sess))
				})
			})
		}
	}
}

// closeAll ends the only session and the handler.
func closeAll(h *GroupHandler, sess *fakeSession) error {
	if err := h.Cleanup(sess); err != nil {
		return err
	}
	return h.Close()
}

// TestHandler_KeepsReading_K14: a slow partition does not stop reading, else sarama would hold up
// its neighbours.
func TestHandler_KeepsReading_K14(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int64
		h := newHandler(t, Config{}, func(context.Context, *idem.Message) error {
			time.Sleep(100 * time.Millisecond)
			handled.Add(1)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
		require.NoError(t, h.Setup(sess))
		claim := &pausingClaim{fakeClaim: newFakeClaim("t", 0, 0)}
		run := consume(h, sess, claim)
		began := time.Now()
		for i := range int64(2000) { // one fetch
			claim.messages <- claim.record(i)
		}
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.True(t, claim.IsPaused())
		time.Sleep(201 * time.Second)
		require.EqualValues(t, 2000, handled.Load(), "in order and complete")
		require.False(t, claim.IsPaused())
		claim.messages <- claim.record(2000)
		time.Sleep(time.Second)
		cancel()
		<-run.done
		require.EqualValues(t, 2001, sess.offset("t", 0))
		require.NoError(t, closeAll(h, sess))
	})
}

// TestHandler_Lost_K11: the session lost its partitions. Handlers are cancelled at once, and no
// offset is marked.
func TestHandler_Lost_K11(t *testing.T) {
	for name, cause := range map[string]error{
		"unknown member": sarama.ErrUnknownMemberId, "generation": sarama.ErrIllegalGeneration, "fenced": sarama.ErrFencedInstancedId,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kinds []observe.RebalanceKind
				observer := rebalances(func(e observe.RebalanceEvent) { kinds = append(kinds, e.Kind) })
				causes := make(chan error, 1)
				h := newHandler(t, Config{CommitInterval: time.Hour, Observers: []observe.Observer{observer}},
					func(ctx context.Context, m *idem.Message) error {
						if m.Offset == 0 {
							return nil
						}
						<-ctx.Done()
						causes <- context.Cause(ctx)
						return ctx.Err()
					})
				ctx, cancel := context.WithCancelCause(t.Context())
				sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
				require.NoError(t, h.Setup(sess))
				claim := newFakeClaim("t", 0, 10)
				run := consume(h, sess, claim)
				claim.messages <- claim.record(0)
				claim.messages <- claim.record(1)
				synctest.Wait()
				began := time.Now()
				cancel(cause)
				h.anySession().Commit() // the timer, just then
				<-run.done
				require.NoError(t, run.err)
				require.Less(t, time.Since(began), 100*time.Millisecond)
				require.ErrorIs(t, <-causes, idem.ErrPartitionLost)
				require.NoError(t, closeAll(h, sess))
				require.Empty(t, sess.marks, "marked for a partition that is somebody else's")
				require.Equal(t, []observe.RebalanceKind{observe.Assigned, observe.Lost}, kinds)
			})
		})
	}
}

type rebalances func(observe.RebalanceEvent)

func (f rebalances) ObserveRebalance(_ context.Context, e observe.RebalanceEvent) { f(e) }

// TestHandler_LateFinish_K39: a handler that was abandoned ends after the partition came back to
// this consumer in the same session. Its late end does not move the watermark.
func TestHandler_LateFinish_K39(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		first := true
		h := newHandler(t, Config{Grace: 5 * time.Second, CommitInterval: time.Second}, func(context.Context, *idem.Message) error {
			if first {
				first = false
				<-gate // ignores its context
			}
			return nil
		})
		sess := newFakeSession(t.Context(), map[string][]int32{"t": {0}})
		require.NoError(t, h.Setup(sess))
		old := newFakeClaim("t", 0, 10)
		run := consume(h, sess, old)
		for i := range int64(5) {
			old.messages <- old.record(100 + i)
		}
		synctest.Wait()
		close(old.messages)
		<-run.done
		require.NoError(t, run.err)
		require.Zero(t, sess.offset("t", 0))

		again := newFakeClaim("t", 0, 10)
		run = consume(h, sess, again)
		again.messages <- again.record(50) // the log was set back, for the sake of the test
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 51, sess.offset("t", 0))
		close(gate)
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 51, sess.offset("t", 0))
		close(again.messages)
		<-run.done
		require.NoError(t, closeAll(h, sess))
	})
}

// TestHandler_HangingCommit_K06: handlers do not wait for a commit, and the end of a claim not for
// ever.
func TestHandler_HangingCommit_K06(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int64
		h := newHandler(t, Config{CommitInterval: time.Second}, func(context.Context, *idem.Message) error {
			handled.Add(1)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
		sess.hang = make(chan struct{})
		require.NoError(t, h.Setup(sess))
		claim := newFakeClaim("t", 0, 0)
		run := consume(h, sess, claim)
		for i := range int64(100) {
			claim.messages <- claim.record(i)
			time.Sleep(100 * time.Millisecond)
		}
		require.EqualValues(t, 100, handled.Load())
		began := time.Now()
		cancel()
		<-run.done
		require.NoError(t, h.Cleanup(sess))
		require.LessOrEqual(t, time.Since(began), 2*runner.CommitWait)
		close(sess.hang)
		require.NoError(t, h.Close())
	})
}

// TestHandler_NoProducer: without a producer the partition stops at the first event that would be
// dead-lettered, and Consume fails from then on.
func TestHandler_NoProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, Config{}, func(_ context.Context, m *idem.Message) error {
			if m.Offset == 1 {
				return idem.Permanent(errTest)
			}
			return nil
		})
		sess := newFakeSession(t.Context(), map[string][]int32{"t": {0}})
		require.NoError(t, h.Setup(sess))
		require.NoError(t, h.Ready())
		claim := newFakeClaim("t", 0, 10)
		run := consume(h, sess, claim)
		for i := range int64(3) {
			claim.messages <- claim.record(i)
		}
		<-run.done
		require.ErrorIs(t, run.err, idem.ErrNoProducer)
		require.EqualValues(t, 1, sess.offset("t", 0), "what came before is committed")
		require.NoError(t, h.Cleanup(sess))
		require.ErrorIs(t, h.Err(), idem.ErrNoProducer)
		require.ErrorIs(t, h.Setup(sess), idem.ErrNoProducer)
		require.ErrorIs(t, h.Ready(), ErrNotReady)
		require.NoError(t, h.Close())
	})
}

// TestHandler_Stall_K13: a partition that rests is told of once, and again when it moves.
func TestHandler_Stall_K13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []observe.PartitionStallEvent
		gate := make(chan struct{})
		h := newHandler(t, Config{StallTimeout: time.Minute, Observers: []observe.Observer{stalls(func(e observe.PartitionStallEvent) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		})}}, func(context.Context, *idem.Message) error { <-gate; return nil })
		sess := newFakeSession(t.Context(), map[string][]int32{"t": {0}})
		require.NoError(t, h.Setup(sess))
		claim := newFakeClaim("t", 0, 10)
		run := consume(h, sess, claim)
		claim.messages <- claim.record(0)
		time.Sleep(59 * time.Second)
		require.NoError(t, h.Ready())
		time.Sleep(5 * time.Minute)
		require.ErrorContains(t, h.Ready(), "t/0 has not moved for 5m59s")
		mu.Lock()
		require.Len(t, told, 1)
		mu.Unlock()
		close(gate)
		time.Sleep(2 * time.Second)
		require.NoError(t, h.Ready())
		close(claim.messages)
		<-run.done
		require.NoError(t, closeAll(h, sess))
		require.Len(t, told, 2)
		require.True(t, told[1].Over)
	})
}

type stalls func(observe.PartitionStallEvent)

func (f stalls) ObservePartitionStall(_ context.Context, e observe.PartitionStallEvent) { f(e) }

// TestHandler_CommitErrors_K05: sarama tells errors of commits elsewhere and later; observers get
// them with the commit.
func TestHandler_CommitErrors_K05(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []observe.CommitEvent
		h := newHandler(t, Config{Observers: []observe.Observer{commits(func(e observe.CommitEvent) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		})}}, func(context.Context, *idem.Message) error { return nil })
		sess := newFakeSession(t.Context(), map[string][]int32{"t": {0}})
		require.NoError(t, h.Setup(sess))
		claim := newFakeClaim("t", 0, 10)
		run := consume(h, sess, claim)
		time.Sleep(500 * time.Millisecond)
		claim.messages <- claim.record(0)
		time.Sleep(500*time.Millisecond + errorDelay/2) // the first commit, at 1 s
		h.NoteError(sarama.ErrOffsetOutOfRange)
		h.NoteError(errTest)
		time.Sleep(5 * time.Second)
		claim.messages <- claim.record(1)
		time.Sleep(1500 * time.Millisecond)
		h.NoteError(errTest) // too late to be of a commit
		time.Sleep(5 * time.Second)
		mu.Lock()
		require.Len(t, told, 2, "idle commits are not told")
		require.ErrorIs(t, told[0].Err, errTest)
		require.Equal(t, 1, told[0].Partitions)
		require.NoError(t, told[1].Err)
		mu.Unlock()
		close(claim.messages)
		<-run.done
		require.NoError(t, closeAll(h, sess))
	})
}

type commits func(observe.CommitEvent)

func (f commits) ObserveCommit(_ context.Context, e observe.CommitEvent) { f(e) }
