package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
)

var (
	errLost   = errors.New("the group has gone on")
	errDenied = errors.New("no right on the group")
)

// classify knows the errors of the client.
func classify(err error) Class {
	switch {
	case errors.Is(err, errLost):
		return OldGeneration
	case errors.Is(err, errDenied):
		return DeniedGroup
	}
	return Transient
}

// newGroup returns a group that gives every event to fn.
func newGroup(t *testing.T, cfg Config, fn func(context.Context, *idem.Message) error) *Group {
	t.Helper()
	r := idem.NewRouter(idem.Type(idem.Fixed("thing")), idem.ID(idem.FromHeader("event-id")))
	idem.On(r, "thing", func(ctx context.Context, e idem.Event[struct{}]) error { return fn(ctx, e.Message) })
	cfg.Group, cfg.Store = "g", memstore.New(memstore.Volatile())
	cfg.Logger = slog.New(slog.DiscardHandler)
	g, err := NewGroup(cfg, r, classify)
	require.NoError(t, err)
	return g
}

// TestGroup_EndOf_K11: how the assignments of a session end. The meaning of a plain cancellation
// depends on the owner of the context. A client may cancel the session before the cause of a stop
// reaches it.
func TestGroup_EndOf_K11(t *testing.T) {
	for name, c := range map[string]struct {
		cause                    error // nil: alive
		ownsContext, stops, lost bool
	}{
		"alive, a revoke":              {nil, true, false, false},
		"cancelled by another program": {context.Canceled, false, false, false},
		"cancelled by the client":      {context.Canceled, true, false, true},
		"cancelled in our stop":        {context.Canceled, true, true, false},
		"our stop":                     {idem.ErrStopping, true, false, false},
		"a rebalance":                  {errTest, true, false, false},
		"the membership is gone":       {fmt.Errorf("x: %w", errLost), false, false, true},
		"gone in our stop":             {errLost, true, true, true},
		"lost, says the runner":        {fmt.Errorf("x: %w", idem.ErrPartitionLost), false, false, true},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if c.cause != nil {
			cancel(c.cause)
		}
		g := &Group{classify: classify, Hooks: Hooks{OwnsContext: c.ownsContext, Stopping: func() bool { return c.stops }}}
		end := g.endOf(ctx)
		require.Equal(t, c.lost, errors.Is(end, idem.ErrPartitionLost), name)
		require.Equal(t, c.lost, end != nil, name)
		if c.lost {
			require.ErrorIs(t, end, c.cause, name)
		}
		cancel(nil)
	}
}

// TestGroup_ReportRebalance_G04: the log has the cause in the text of Config.ErrorText, and
// observers get the error itself.
func TestGroup_ReportRebalance_G04(t *testing.T) {
	var lines strings.Builder
	cfg := good()
	cfg.ErrorText = func(error) string { return "hidden" }
	seen := new(rebalances)
	g := &Group{cfg: cfg, log: slog.New(slog.NewTextHandler(&lines, nil)), obs: ownObservers{Rebalance: []observe.RebalanceObserver{seen}}}
	g.reportRebalance(newFakeSession(t.Context()), observe.Lost, map[string][]int32{"t": {0}}, errLost)
	require.Contains(t, lines.String(), "cause=hidden")
	require.ErrorIs(t, (*seen)[0].Cause, errLost)
}

// fakeSession records marks and commits.
type fakeSession struct {
	ctx context.Context

	mu               sync.Mutex
	marks, committed map[TopicPartition]int64
}

func newFakeSession(ctx context.Context) *fakeSession {
	return &fakeSession{ctx: ctx, marks: map[TopicPartition]int64{}, committed: map[TopicPartition]int64{}}
}

func (s *fakeSession) Context() context.Context { return s.ctx }
func (s *fakeSession) Generation() int32        { return 1 }

func (s *fakeSession) Mark(p TopicPartition, next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks[p] = next
}

func (s *fakeSession) Commit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, next := range s.marks {
		s.committed[p] = next
	}
}

func (s *fakeSession) offset(p TopicPartition) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed[p]
}

// confirmingSession answers direct commits; refused has the answers to come.
type confirmingSession struct {
	*fakeSession
	refused []error
	direct  []map[TopicPartition]int64
}

func (s *confirmingSession) CommitDirectly(_ context.Context, offsets map[TopicPartition]int64) (map[TopicPartition]error, error) {
	s.direct = append(s.direct, offsets)
	refused := map[TopicPartition]error{}
	if len(s.refused) > 0 {
		for p := range offsets {
			refused[p] = s.refused[0]
		}
		s.refused = s.refused[1:]
	}
	return refused, nil
}

// fakeClaim is a partition with records that a test sends.
type fakeClaim struct {
	TopicPartition
	ctx     context.Context
	records chan int64 // offsets
}

func (c *fakeClaim) Topic() string              { return c.TopicPartition.Topic }
func (c *fakeClaim) Partition() int32           { return c.TopicPartition.Partition }
func (c *fakeClaim) InitialOffset() int64       { return 0 }
func (c *fakeClaim) HighWaterMarkOffset() int64 { return 1000 }
func (c *fakeClaim) Context() context.Context   { return c.ctx }

// run consumes a claim until it ends.
func (c *fakeClaim) run(s *ActiveSession) (ended chan error) {
	ended = make(chan error, 1)
	go func() { ended <- Consume(s, c, c.feed(), 2) }()
	return ended
}

// feed returns the records as messages.
func (c *fakeClaim) feed() Feed[int64] {
	return Feed[int64]{Records: c.records, Message: func(offset int64) *idem.Message {
		return &idem.Message{
			Topic: c.Topic(), Partition: c.Partition(), Offset: offset, Value: []byte("{}"), Time: time.Unix(offset+1, 0),
			Headers: []idem.Header{{Key: "event-id", Value: fmt.Appendf(nil, "%s-%d", c.TopicPartition, offset)}},
		}
	}}
}

type rebalances []observe.RebalanceEvent

func (r *rebalances) ObserveRebalance(_ context.Context, e observe.RebalanceEvent) {
	*r = append(*r, e)
}

func (r *rebalances) kinds() (kinds []observe.RebalanceKind) {
	for _, e := range *r {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// TestConsume_K03_K11: two claims with contexts of their own. One is revoked in order: the running
// handler may finish and the offset is committed. The other is lost: the handler is cancelled at
// once, and no offset is marked, although the session goes on.
func TestConsume_K03_K11(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		seen := new(rebalances)
		g := newGroup(t, Config{Observers: []observe.Observer{seen}}, func(ctx context.Context, m *idem.Message) error {
			if m.Offset == 0 {
				return nil
			}
			select {
			case <-time.After(5 * time.Second):
				return nil
			case <-ctx.Done():
				causes <- context.Cause(ctx)
				return ctx.Err()
			}
		})
		ctx, end := context.WithCancelCause(t.Context())
		sess := newFakeSession(ctx)
		s := g.Begin(sess, map[string][]int32{"t": {0, 1}})
		require.True(t, g.Joined())
		lostCtx, lose := context.WithCancelCause(ctx)
		revoked := &fakeClaim{at("t", 0), ctx, make(chan int64, 10)}
		gone := &fakeClaim{at("t", 1), lostCtx, make(chan int64, 10)}
		endRevoked, endGone := revoked.run(s), gone.run(s)
		for _, c := range []*fakeClaim{revoked, gone} {
			c.records <- 0
			c.records <- 1
		}
		synctest.Wait()
		require.Len(t, g.Assignments(), 2)
		began := time.Now()
		lose(fmt.Errorf("x: %w", idem.ErrPartitionLost))
		s.Commit()
		require.NoError(t, <-endGone)
		require.ErrorIs(t, <-causes, idem.ErrPartitionLost)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.Zero(t, sess.marks[at("t", 1)], "another member may have the partition")

		close(revoked.records)
		require.NoError(t, <-endRevoked)
		require.Equal(t, 5*time.Second, time.Since(began).Round(time.Second), "within the grace")
		require.EqualValues(t, 2, sess.offset(at("t", 0)))
		require.True(t, g.Released())
		end(idem.ErrStopping)
		g.End(s, context.Cause(ctx))
		require.False(t, g.Joined())
		require.NoError(t, g.Close())
		require.Equal(t, []observe.RebalanceKind{observe.Assigned, observe.Lost, observe.Revoked}, seen.kinds())
	})
}

// TestConsume_QueueShares: partitions that a cooperative rebalance adds or takes change the shares of
// the others in Config.QueueBytes.
func TestConsume_QueueShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Config{QueueBytes: 4 * minQueueShare}, func(ctx context.Context, m *idem.Message) error {
			<-ctx.Done()
			return ctx.Err()
		})
		ctx, end := context.WithCancelCause(t.Context())
		s := g.Begin(newFakeSession(ctx), map[string][]int32{"t": {0}})
		begin := func(id int32) (c *fakeClaim, ended chan error) {
			c = &fakeClaim{at("t", id), ctx, make(chan int64)}
			ended = c.run(s)
			synctest.Wait()
			return c, ended
		}
		offset := int64(0)
		fits := func(a *Assignment, kib int) bool {
			offset++
			return a.lane.Offer(&idem.Message{
				Topic: "t", Offset: offset, Value: append([]byte("{}"), bytes.Repeat([]byte(" "), kib<<10)...),
				Headers: []idem.Header{{Key: "event-id", Value: fmt.Append(nil, offset)}},
			})
		}
		_, endFirst := begin(0)
		first := g.Assignments()[0]
		require.True(t, fits(first, 1))
		require.True(t, fits(first, 100), "of 128, for at least two claims")
		var more []*fakeClaim
		var ends []chan error
		for id := range int32(3) {
			c, ended := begin(id + 1)
			more, ends = append(more, c), append(ends, ended)
		}
		require.False(t, fits(first, 10), "of 64")
		close(more[0].records)
		require.NoError(t, <-ends[0])
		require.False(t, fits(first, 10), "of 85")
		close(more[1].records)
		require.NoError(t, <-ends[1])
		require.True(t, fits(first, 10), "of 128")
		end(errLost)
		require.NoError(t, <-ends[2])
		require.NoError(t, <-endFirst)
		g.End(s, errLost)
		require.NoError(t, g.Close())
	})
}

// TestEndTogether_K11: claims that the client ends for one cause are one rebalance. A claim that
// ends by itself is another.
func TestEndTogether_K11(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := new(rebalances)
		g := newGroup(t, Config{Observers: []observe.Observer{seen}}, func(context.Context, *idem.Message) error { return nil })
		ctx, end := context.WithCancelCause(t.Context())
		s := g.Begin(newFakeSession(ctx), map[string][]int32{"t": {0, 1, 2, 3}})
		lostCtx, lose := context.WithCancelCause(ctx)
		var ends []<-chan error
		for id, ctx := range []context.Context{lostCtx, lostCtx, ctx, ctx} {
			c := &fakeClaim{at("t", int32(id)), ctx, make(chan int64)}
			ends = append(ends, c.run(s))
			if id == 3 {
				close(c.records)
			}
		}
		synctest.Wait()
		s.EndTogether(map[string][]int32{"t": {0, 1}, "other": {2}})
		s.EndTogether(map[string][]int32{"t": {1}}) // told twice
		lose(fmt.Errorf("x: %w", idem.ErrPartitionLost))
		require.NoError(t, errors.Join(<-ends[0], <-ends[1], <-ends[3]))
		require.Equal(t, []observe.RebalanceKind{observe.Assigned, observe.Revoked, observe.Lost}, seen.kinds())
		require.Equal(t, map[string][]int32{"t": {0, 1}}, (*seen)[2].Partitions)
		end(idem.ErrStopping)
		require.NoError(t, <-ends[2])
		g.End(s, context.Cause(ctx))
		require.NoError(t, g.Close())
	})
}

// TestConsume_Abandoned_Rule56: a handler is left behind at a revoke and ends later. A stop long
// afterwards does not report it. A handler that is left behind by the stop is reported.
func TestConsume_Abandoned_Rule56(t *testing.T) {
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, Config{Grace: 5 * time.Second}, func(context.Context, *idem.Message) error {
				time.Sleep(time.Hour)
				return nil
			})
			g.Hooks.Stopping = func() bool { return stops }
			ctx, end := context.WithCancelCause(t.Context())
			s := g.Begin(newFakeSession(ctx), map[string][]int32{"t": {0}})
			claim := &fakeClaim{at("t", 0), ctx, make(chan int64, 1)}
			ended := claim.run(s)
			claim.records <- 0
			synctest.Wait()
			close(claim.records)
			require.NoError(t, <-ended)
			require.Equal(t, 1, g.Processor().Status().Abandoned)
			time.Sleep(2 * time.Hour)
			end(idem.ErrStopping)
			g.End(s, context.Cause(ctx))
			require.NoError(t, g.Close())
			abandoned, _ := g.AtStop()
			require.Equal(t, stops, errors.Is(abandoned, idem.ErrAbandoned))
		})
	}
}

// TestConsume_Confirmed_K03: at a stop a broker confirms the offsets, again after a refusal.
// Without a stop no offset is committed directly.
func TestConsume_Confirmed_K03(t *testing.T) {
	for name, c := range map[string]struct {
		stops   bool
		refused []error
		direct  int
		unsafe  bool
	}{
		"no stop":          {false, nil, 0, false},
		"confirmed":        {true, nil, 1, false},
		"refused once":     {true, []error{errTest}, 2, false},
		"refused for good": {true, []error{errDenied}, 1, true},
		"always refused":   {true, slices.Repeat([]error{errTest}, 100), 20, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, Config{}, func(context.Context, *idem.Message) error { return nil })
				g.Hooks = Hooks{OwnsContext: true, Stopping: func() bool { return c.stops }}
				ctx, end := context.WithCancelCause(t.Context())
				sess := &confirmingSession{fakeSession: newFakeSession(ctx), refused: c.refused}
				s := g.Begin(sess, map[string][]int32{"t": {0}})
				claim := &fakeClaim{at("t", 0), ctx, make(chan int64, 10)}
				ended := claim.run(s)
				claim.records <- 0
				synctest.Wait()
				end(idem.ErrStopping)
				require.NoError(t, <-ended)
				g.End(s, context.Cause(ctx))
				require.NoError(t, g.Close())
				require.InDelta(t, c.direct, len(sess.direct), float64(c.direct)/5)
				_, unsafe := g.AtStop()
				require.Equal(t, c.unsafe, errors.Is(unsafe, ErrNotCommitted))
			})
		})
	}
}

// TestMarks_ConfirmsTheLastMark_K03: a confirmed offset confirms no later one of its partition, and
// an offset that a broker refused is sent again.
func TestMarks_ConfirmsTheLastMark_K03(t *testing.T) {
	g := newGroup(t, Config{}, func(context.Context, *idem.Message) error { return nil })
	defer func() { require.NoError(t, g.Close()) }()
	sess := &confirmingSession{fakeSession: newFakeSession(t.Context())}
	m := newMarks(g, sess)
	p, q := at("t", 0), at("t", 1)
	m.set(p, 5)
	m.set(q, 3)
	require.NoError(t, m.commitDirectly(t.Context(), q, 3))
	m.set(p, 7)
	require.NoError(t, m.commitDirectly(t.Context(), p, 7))
	require.NoError(t, m.commitDirectly(t.Context(), p, 7))
	require.Equal(t, []map[TopicPartition]int64{{p: 5, q: 3}, {p: 7}}, sess.direct)

	m.set(q, 4)
	sess.refused = []error{errTest}
	require.ErrorIs(t, m.commitDirectly(t.Context(), q, 4), errTest)
	require.NoError(t, m.commitDirectly(t.Context(), q, 4))
	require.Equal(t, []map[TopicPartition]int64{{q: 4}, {q: 4}}, sess.direct[2:])
}

// placedClaim is a claim that begins at a place.
type placedClaim struct {
	*Position
	records chan int64
}

// TestConsume_ChosenPlace_K29: the place that a policy has chosen is committed before the first
// record is handled. A committed place needs no commit.
func TestConsume_ChosenPlace_K29(t *testing.T) {
	for chosen, want := range map[bool]int64{true: 5, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancelCause(t.Context())
			sess := newFakeSession(ctx)
			var at0 int64
			g := newGroup(t, Config{CommitInterval: time.Hour}, func(context.Context, *idem.Message) error {
				at0 = sess.offset(at("t", 0))
				return nil
			})
			s := g.Begin(sess, map[string][]int32{"t": {0}})
			sess.Mark(at("t", 0), 5)
			claim := &placedClaim{NewPosition(at("t", 0), Place{Offset: 5, Committed: true, Chosen: chosen}), make(chan int64, 1)}
			claim.records <- 5
			ended := make(chan error, 1)
			go func() {
				ended <- Consume(s, claim, Feed[int64]{Records: claim.records, Message: func(offset int64) *idem.Message {
					return &idem.Message{Topic: "t", Offset: offset, Value: []byte("{}"), Headers: []idem.Header{{Key: "event-id", Value: []byte("1")}}}
				}}, 1)
			}()
			synctest.Wait()
			require.Equal(t, want, at0)
			end(errTest)
			require.NoError(t, <-ended)
			g.End(s, errTest)
			require.NoError(t, g.Close())
			require.EqualValues(t, 6, sess.offset(at("t", 0)))
		})
	}
}

// beginChosen consumes a place that a policy has chosen, while a coordinator refuses all commits.
// No record comes. The result is the recorded offset, and what is not safe at the stop.
func beginChosen(t *testing.T, place Place, refused int) (sess *confirmingSession, next int64, unsafe error) {
	t.Helper()
	g := newGroup(t, Config{}, func(context.Context, *idem.Message) error { return nil })
	stops := false
	g.Hooks = Hooks{OwnsContext: true, Stopping: func() bool { return stops }}
	ctx, end := context.WithCancelCause(t.Context())
	sess = &confirmingSession{fakeSession: newFakeSession(ctx), refused: slices.Repeat([]error{errTest}, refused)}
	s := g.Begin(sess, map[string][]int32{"t": {0}})
	claim := &placedClaim{NewPosition(at("t", 0), place), make(chan int64)}
	ended := make(chan error, 1)
	go func() {
		ended <- Consume(s, claim, Feed[int64]{Records: claim.records}, 1)
	}()
	time.Sleep(2 * CommitWait)
	require.Len(t, s.progress(), 1)
	next = s.progress()[0].Next
	stops = true
	end(idem.ErrStopping)
	close(claim.records)
	require.NoError(t, <-ended)
	g.End(s, context.Cause(ctx))
	require.NoError(t, g.Close())
	_, unsafe = g.AtStop()
	return sess, next, unsafe
}

// TestConsume_ChosenPlaceIsConfirmed_K29: a place that a policy has chosen is safe only after a
// broker has confirmed it. Until then no store gets a position of a new partition, and a stop is
// not safe. A position that a store already has stays.
func TestConsume_ChosenPlaceIsConfirmed_K29(t *testing.T) {
	fresh := func(offset int64) Place {
		return Place{Offset: offset, Committed: true, Chosen: true, fresh: true}
	}
	known := fresh(5)
	known.fresh = false
	for name, c := range map[string]struct {
		place   Place
		refused int
		next    int64
		unsafe  bool
		end     int64 // the offset of the last direct commit
	}{
		"confirmed":                {fresh(5), 0, 5, false, 5},
		"refused":                  {fresh(5), 1000, 0, true, 5},
		"refused at first":         {fresh(5), 3, 5, false, 5},
		"refused until the stop":   {fresh(5), 21, 0, false, 5},
		"refused, an empty log":    {fresh(0), 1000, 0, true, 0},
		"refused, a known one":     {known, 1000, 5, true, 5},
		"committed, nothing to do": {Place{Offset: 5, Committed: true}, 1000, 5, false, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sess, next, unsafe := beginChosen(t, c.place, c.refused)
				require.Equal(t, c.next, next)
				require.Equal(t, c.unsafe, errors.Is(unsafe, ErrNotCommitted), unsafe)
				if c.end < 0 {
					require.Empty(t, sess.direct)
					return
				}
				require.NotEmpty(t, sess.direct)
				require.Equal(t, map[TopicPartition]int64{at("t", 0): c.end}, sess.direct[len(sess.direct)-1])
			})
		})
	}
}
