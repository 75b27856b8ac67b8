package consumer

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/runner"
)

// told is a store that notes the progress that it gets.
type told struct {
	dedup.Store
	hang chan struct{} // if not nil, RecordProgress waits for it, or for its context

	mu         sync.Mutex
	calls      int
	progress   map[runner.TopicPartition]dedup.Progress
	registered []dedup.Registration
	refusals   []error // of Register, one after the other
}

func newTold() *told {
	return &told{Store: memstore.New(memstore.Volatile()), progress: make(map[runner.TopicPartition]dedup.Progress)}
}

func (s *told) Volatile() error { return nil }

func (s *told) RecordProgress(ctx context.Context, scope string, progress []dedup.Progress) error {
	if s.hang != nil {
		select {
		case <-s.hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	for _, p := range progress {
		s.progress[runner.TopicPartition{Topic: scope + "/" + p.Topic, Partition: p.Partition}] = p
	}
	return nil
}

func (s *told) Progress(context.Context, string, ...string) ([]dedup.Progress, error) {
	return nil, nil
}

func (s *told) Register(_ context.Context, r dedup.Registration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered = append(s.registered, r)
	if len(s.refusals) == 0 {
		return nil
	}
	err := s.refusals[0]
	s.refusals = s.refusals[1:]
	return err
}

func (s *told) of(topic string, id int32) (dedup.Progress, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress[runner.TopicPartition{Topic: topic, Partition: id}], s.calls
}

func (s *told) registrations() []dedup.Registration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registered
}

// endless is a claim with a high watermark and a beginning of the test's.
type endless struct {
	*fakeClaim
	from, high int64
}

func (c *endless) InitialOffset() int64       { return c.from }
func (c *endless) HighWaterMarkOffset() int64 { return c.high }

// The bounds of package runner.
const (
	errorDelay       = 100 * time.Millisecond // how much later than a commit its error may come
	maxKept          = 1024                   // messages of a claim that cannot be paused
	progressInterval = 10 * time.Second       // between two records of progress
	progressWait     = 3 * time.Second        // for a store that does not answer
	freshEnd         = 15 * time.Second       // how old the end of a log may be
)

// asks answers like the leader of such claims, unless the leader is away.
type asks struct{ away atomic.Bool }

func (a *asks) Ask(questions []runner.EndQuestion, _ <-chan struct{}) {
	for _, q := range questions {
		offset, wanted := q.Tail.Ask(q.Next, time.Now())
		if c, ok := q.Claim.(*endless); ok && wanted && !a.away.Load() {
			q.Tail.Learn(time.Now(), offset, runner.Look{Clear: offset, End: offset >= c.high, Visible: offset < c.high})
		}
	}
}

func at(claim *fakeClaim, offset int64, when time.Time) *sarama.ConsumerMessage {
	m := claim.record(offset)
	m.Timestamp = when
	return m
}

// tellingHandler handles everything, and lets store know.
func tellingHandler(t *testing.T, store dedup.Store) *GroupHandler {
	t.Helper()
	r := idem.NewRouter(idem.Type(idem.Fixed("thing")), idem.ID(idem.FromHeader("event-id")))
	idem.On(r, "thing", func(context.Context, idem.Event[struct{}]) error { return nil })
	h, err := NewGroupHandler(Config{Group: "g", Store: store, Logger: quiet}, r)
	require.NoError(t, err)
	h.g.Hooks.Ends = new(asks)
	return h
}

// TestProgress_Rule8: the store learns how far each partition is, in the broker's time, while the
// session lives and once at the end of each claim.
func TestProgress_Rule8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTold()
		h := tellingHandler(t, store)
		ctx, cancel := context.WithCancelCause(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{"t": {0, 1, 2, 3}})
		require.NoError(t, h.Setup(sess))
		began := time.Now()
		busy := &endless{newFakeClaim("t", 0, 10), 500, 1000}
		idle := &endless{newFakeClaim("t", 1, 10), 70, 70}
		behind := &endless{newFakeClaim("t", 2, 10), 70, 80} // its first record does not come
		unknown := &endless{newFakeClaim("t", 3, 10), sarama.OffsetOldest, 80}
		var runs []*running
		for _, c := range []*endless{busy, idle, behind, unknown} {
			runs = append(runs, consume(h, sess, c))
		}
		for i := range int64(250) {
			busy.messages <- at(busy.fakeClaim, 500+i, began.Add(time.Duration(i)*20*time.Millisecond))
		}
		time.Sleep(progressInterval + time.Millisecond)
		_, calls := store.of("", 0)
		require.Equal(t, 1, calls, "one call for all partitions")
		p, _ := store.of("g/t", 0)
		require.EqualValues(t, 750, p.Next)
		require.False(t, p.CaughtUp)
		require.WithinRange(t, p.Time, began.Add(3980*time.Millisecond), began.Add(249*20*time.Millisecond))
		p, _ = store.of("g/t", 1)
		require.Equal(t, dedup.Progress{Topic: "t", Partition: 1, Next: 70, CaughtUp: true}, p)
		p, _ = store.of("g/t", 2)
		require.Equal(t, dedup.Progress{Topic: "t", Partition: 2, Next: 70}, p, "known, so that the store waits for it")
		p, _ = store.of("g/t", 3)
		require.Equal(t, dedup.Progress{Topic: "t", Partition: 3}, p)

		busy.messages <- at(busy.fakeClaim, 999, began.Add(time.Hour))
		synctest.Wait()
		close(busy.messages) // revoked alone
		<-runs[0].done
		synctest.Wait()
		p, calls = store.of("g/t", 0)
		require.Equal(t, dedup.Progress{Topic: "t", Next: 1000, Time: began.Add(time.Hour)}, p, "its leader was not asked again")
		require.Equal(t, 2, calls)
		idle.messages <- at(idle.fakeClaim, 70, began.Add(2*time.Hour))
		synctest.Wait()
		cancel(sarama.ErrRebalanceInProgress)
		for _, run := range runs {
			<-run.done
		}
		require.NoError(t, h.Cleanup(sess))
		require.NoError(t, h.Close())
		p, _ = store.of("g/t", 1)
		require.Equal(t, dedup.Progress{Topic: "t", Partition: 1, Next: 71, Time: began.Add(2 * time.Hour), CaughtUp: true}, p, "the last word: its end was 70 a moment ago")
	})
}

// TestProgress_InHand: with a record in hand a partition is not caught up, for each last known end
// of the log.
func TestProgress_InHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, gate := newTold(), make(chan struct{})
		r := idem.NewRouter(idem.Type(idem.Fixed("thing")), idem.ID(idem.FromHeader("event-id")))
		idem.On(r, "thing", func(context.Context, idem.Event[struct{}]) error { <-gate; return nil })
		h, err := NewGroupHandler(Config{Group: "g", Store: store, Logger: quiet}, r)
		require.NoError(t, err)
		h.g.Hooks.Ends = new(asks)
		ctx, cancel := context.WithCancelCause(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{"t": {0, 1}})
		require.NoError(t, h.Setup(sess))
		var runs []*running
		for id, from := range []int64{70, sarama.OffsetNewest} {
			c := &endless{newFakeClaim("t", int32(id), 10), from, 70}
			runs = append(runs, consume(h, sess, c))
			c.messages <- at(c.fakeClaim, 70, time.Now())
		}
		time.Sleep(progressInterval + time.Millisecond)
		p, _ := store.of("g/t", 0)
		require.Equal(t, dedup.Progress{Topic: "t", Next: 70}, p)
		p, _ = store.of("g/t", 1)
		require.Equal(t, dedup.Progress{Topic: "t", Partition: 1}, p)
		close(gate)
		synctest.Wait()
		cancel(sarama.ErrRebalanceInProgress)
		for _, run := range runs {
			<-run.done
		}
		require.NoError(t, h.Cleanup(sess))
		require.NoError(t, h.Close())
	})
}

// TestProgress_NotOfOthers: the progress of a lost partition is not recorded, since it belongs to
// the next owner.
func TestProgress_NotOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTold()
		h := tellingHandler(t, store)
		ctx, cancel := context.WithCancelCause(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
		require.NoError(t, h.Setup(sess))
		claim := newFakeClaim("t", 0, 10)
		run := consume(h, sess, claim)
		claim.messages <- at(claim, 0, time.Now())
		time.Sleep(2 * h.cfg.CommitInterval) // it was committed
		require.EqualValues(t, 1, sess.offset("t", 0))
		cancel(sarama.ErrUnknownMemberId)
		<-run.done
		require.NoError(t, h.Cleanup(sess))
		require.NoError(t, h.Close())
		_, calls := store.of("", 0)
		require.Zero(t, calls)
	})
}

// TestProgress_SlowStore: a store that does not answer delays neither a commit nor the end of a
// session.
func TestProgress_SlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTold()
		store.hang = make(chan struct{})
		h := tellingHandler(t, store)
		ctx, cancel := context.WithCancelCause(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
		require.NoError(t, h.Setup(sess))
		claim := newFakeClaim("t", 0, 10)
		run := consume(h, sess, claim)
		time.Sleep(progressInterval + 500*time.Millisecond) // it hangs now
		claim.messages <- at(claim, 0, time.Now())
		time.Sleep(h.cfg.CommitInterval)
		require.EqualValues(t, 1, sess.offset("t", 0))
		began := time.Now()
		claim.messages <- at(claim, 1, time.Now())
		synctest.Wait()
		cancel(sarama.ErrRebalanceInProgress)
		<-run.done
		require.NoError(t, h.Cleanup(sess))
		require.Zero(t, time.Since(began), "the partition is given back at once")
		require.EqualValues(t, 2, sess.offset("t", 0))
		require.NoError(t, h.Close())
		require.LessOrEqual(t, time.Since(began), 3*progressWait)
	})
}

// TestKafka_Progress_Rule8 records on the real broker and the real store. Partitions without
// records are caught up from the start, those with records when they are settled. All progress is
// recorded when Run returns.
func TestKafka_Progress_Rule8(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	brokers, topic, cfg := onKafka(t, 8)
	cfg.Store = pgstore.New(pool)
	produceEvents(t, brokers, topic, 0, 3)
	var got tally
	m := start(t, cfg, routed(got.handle))
	type row struct {
		Next int64
		Age  *float64
	}
	rows := func() map[int32]row {
		all := make(map[int32]row)
		var id int32
		var r row
		found, err := pool.Query(context.Background(), `SELECT partition, next_offset,
			extract(epoch FROM clock_timestamp() - consumed_until)::float8 FROM idem_progress WHERE scope = $1 AND topic = $2`, cfg.Group, topic)
		require.NoError(t, err)
		_, err = pgx.ForEachRow(found, []any{&id, &r.Next, &r.Age}, func() error {
			all[id] = r
			return nil
		})
		require.NoError(t, err)
		return all
	}
	require.Eventually(t, func() bool { return len(rows()) == 8 }, soon, poll)
	sum := int64(0)
	for id, r := range rows() {
		sum += r.Next
		require.NotNil(t, r.Age, "partition %d", id)
		require.InDelta(t, 65, *r.Age, 15, "partition %d", id)
	}
	require.EqualValues(t, 3, sum)
	produceEvents(t, brokers, topic, 3, 10)
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	require.NoError(t, m.end())
	sum = 0
	for r := range maps.Values(rows()) {
		sum += r.Next
	}
	require.EqualValues(t, 10, sum, "recorded at the end")
}
