package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/testenv/rawkafka"
)

// A replay reads exactly the plan and ends behind markers of transactions, which no record follows
// (K-31), and without aborted records (K-30). Under its own scope each event runs once, under the
// scope of the group only events that the group has not handled.
func TestRun(t *testing.T) {
	w := newWorld(t)
	w.write(20, kgo.TryCommit) // partition 0: 0-9, marker 10
	w.write(4, kgo.TryAbort)   // 11-12, marker 13
	var got runs
	live := w.replay(got.router(), Config{Window: all, Scope: OwnScope("live")}) // stands for the group
	plan := w.plan(live)
	require.Equal(t, []PartitionPlan{
		{Topic: "orders", End: 14, FirstTime: began.UTC(), LastTime: began.Add(18 * time.Minute).UTC()},
		{Topic: "orders", Partition: 1, End: 14, FirstTime: began.Add(time.Minute).UTC(), LastTime: began.Add(19 * time.Minute).UTC()},
	}, plan.Partitions)
	require.EqualValues(t, 28, plan.Records())
	require.Empty(t, plan.Warnings())
	w.write(2, kgo.TryCommit) // behind the plan

	var last Progress
	calls := 0
	result, err := live.Run(t.Context(), plan, func(p Progress) { last = p; calls++ })
	require.NoError(t, err)
	require.Equal(t, map[int]int{1: 20}, got.times())
	require.True(t, result.Complete)
	require.Equal(t, Position{"orders": {0: 14, 1: 14}}, result.Position)
	require.Equal(t, Counts{Handled: 20}, result.Counts)
	require.Positive(t, calls)
	require.True(t, last.Over)
	require.EqualValues(t, 28, last.Done)
	require.EqualValues(t, 28, last.Total)
	require.Equal(t, 2, last.PartitionsDone)
	require.Equal(t, 2, last.Partitions)

	again, err := live.Run(t.Context(), plan, nil)
	require.NoError(t, err)
	require.Equal(t, Counts{Duplicates: 20}, again.Counts)
	other, err := w.replay(got.router(), Config{Window: all, Scope: OwnScope("other")}).
		Run(t.Context(), Plan{Scope: "billing.replay.other", Partitions: plan.Partitions}, nil)
	require.NoError(t, err)
	require.Equal(t, Counts{Handled: 20}, other.Counts)
	require.Equal(t, map[int]int{2: 20}, got.times())
}

// An interrupted replay continues under the same name, from the beginning or from its position, and
// repeats no effect.
func TestRun_Interrupted(t *testing.T) {
	for _, lanes := range []int{1, 8} {
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			w := newWorld(t)
			w.write(200, kgo.TryCommit)
			w.live.Lanes = lanes
			var got runs
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("enough")
			got.hook = func(_ idem.Event[struct{}], n int) error {
				if n == 60 {
					cancel(why)
				}
				return nil
			}
			cfg := Config{Window: all, Scope: OwnScope("fix"), Rate: 2000}
			first := w.replay(got.router(), cfg)
			plan := w.plan(first)
			result, err := first.Run(ctx, plan, nil)
			require.ErrorIs(t, err, idem.ErrStopping)
			require.ErrorIs(t, err, why)
			require.False(t, result.Complete)
			handled := int(result.Counts.Handled)
			require.GreaterOrEqual(t, handled, 60)
			require.Less(t, handled, 200)
			at := result.Position["orders"]
			require.LessOrEqual(t, int(at[0]+at[1]), handled)
			require.Positive(t, at[0]+at[1])

			got.hook = nil
			second := w.replay(got.router(), cfg)
			result, err = second.Run(t.Context(), plan.From(result.Position), nil)
			require.NoError(t, err)
			require.Equal(t, map[int]int{1: 200}, got.times())
			require.EqualValues(t, 200-handled, result.Counts.Handled)
			result, err = second.Run(t.Context(), plan, nil) // from the beginning
			require.NoError(t, err)
			require.Equal(t, Counts{Duplicates: 200}, result.Counts)
			require.Equal(t, map[int]int{1: 200}, got.times())
		})
	}
}

// Windows of time and of offsets choose records.
func TestPlan_Windows(t *testing.T) {
	w := newWorld(t)
	w.write(20, kgo.TryCommit)
	var got runs
	run := func(name string, window Window) []string {
		got = runs{}
		r := w.replay(got.router(), Config{Window: window, Scope: OwnScope(name)})
		result, err := r.Run(t.Context(), w.plan(r), nil)
		require.NoError(t, err)
		require.EqualValues(t, len(got.ids()), result.Counts.Settled())
		return got.ids()
	}
	require.Equal(t, []string{"e005", "e006", "e007"}, run("time", Between(began.Add(4*time.Minute+time.Second), began.Add(8*time.Minute))))
	require.Equal(t, []string{"e018", "e019"}, run("since", Between(began.Add(18*time.Minute), time.Time{})))
	require.Equal(t, []string{"e000", "e001"}, run("until", Between(time.Time{}, began.Add(2*time.Minute))))
	require.Empty(t, run("future", Between(time.Now().Add(time.Hour), time.Time{})))
	require.Equal(t, []string{"e002", "e004"}, run("offsets", Offsets(Range{Topic: "orders", First: 1, End: 3})))
	require.Equal(t, []string{"e017", "e019"}, run("rest", Offsets(Range{Topic: "orders", Partition: 1, First: 8, End: -1})))

	r := w.replay(got.router(), Config{Window: Offsets(Range{Topic: "orders", Partition: 7, End: 1}), Scope: OwnScope("x")})
	_, err := r.Plan(t.Context())
	require.ErrorIs(t, err, sarama.ErrUnknownTopicOrPartition)
	w.live.Topics = []string{"missing"}
	_, err = w.replay(got.router(), Config{Window: all, Scope: OwnScope("x")}).Plan(t.Context())
	require.ErrorIs(t, err, sarama.ErrUnknownTopicOrPartition)
}

// A plan can be kept as JSON, also with a record from beyond the year 9999: JSON has no such time.
func TestPlan_TimeBeyondTheYear9999(t *testing.T) {
	w := newWorld(t)
	rawkafka.ProduceAt(t, w.live.Brokers, "orders", 1.7e15, "{}")
	w.write(1, kgo.TryCommit) // 1, marker 2
	var got runs
	plan := w.plan(w.replay(got.router(), Config{Window: all, Scope: OwnScope("far")}))
	require.Equal(t, PartitionPlan{Topic: "orders", End: 3, LastTime: began.UTC()}, plan.Partitions[0])
	text, err := json.Marshal(plan)
	require.NoError(t, err)
	var kept Plan
	require.NoError(t, json.Unmarshal(text, &kept))
	require.Equal(t, plan.Partitions, kept.Partitions)
}

// An open transaction is not in the plan. A plan that was made by hand waits for it.
func TestRun_OpenTransaction(t *testing.T) {
	w := newWorld(t)
	w.write(4, kgo.TryCommit) // partition 0: 0, 1, marker 2
	w.open(2)
	var got runs
	r := w.replay(got.router(), Config{Window: all, Scope: OwnScope("open"), BrokerWait: time.Nanosecond})
	plan := w.plan(r)
	require.EqualValues(t, 6, plan.Records())
	require.EqualValues(t, 1, plan.Partitions[0].Open)
	require.Len(t, plan.Warnings(), 2)
	result, err := r.Run(t.Context(), plan, nil)
	require.NoError(t, err)
	require.Equal(t, Counts{Handled: 4}, result.Counts)
	plan.Partitions[0].End = 4
	result, err = r.Run(t.Context(), plan, nil)
	require.ErrorIs(t, err, ErrOpenTransaction)
	require.EqualValues(t, 2, result.Position["orders"][0])
	require.NoError(t, w.kgo.EndTransaction(t.Context(), kgo.TryCommit))
	result, err = r.Run(t.Context(), plan, nil)
	require.NoError(t, err)
	require.EqualValues(t, 4, result.Position["orders"][0])
	require.Equal(t, Counts{Handled: 1, Duplicates: 4}, result.Counts)
}

// If records of the window are deleted, before or after the plan, the error names the records,
// unless the replay may skip them (K-17).
func TestRun_Deleted(t *testing.T) {
	w := newWorld(t)
	w.write(20, kgo.TryCommit)
	var got runs
	cfg := Config{Window: Offsets(Range{Topic: "orders", End: 10}), Scope: OwnScope("gone")}
	r := w.replay(got.router(), cfg)
	early := w.plan(r)
	require.NoError(t, w.admin.DeleteRecords("orders", map[int32]int64{0: 4}))

	var deleted *DeletedError
	result, err := r.Run(t.Context(), early, nil)
	require.ErrorAs(t, err, &deleted)
	require.ErrorContains(t, err, "orders/0 (4 offsets)")
	require.Empty(t, got.ids())
	require.Zero(t, result.Position["orders"][0])
	late := w.plan(r)
	require.EqualValues(t, 4, late.Partitions[0].Deleted)
	require.EqualValues(t, 4, late.Partitions[0].First)
	_, err = r.Run(t.Context(), late, nil)
	require.ErrorAs(t, err, &deleted)
	require.Empty(t, got.ids())

	byTime := w.plan(w.replay(got.router(), Config{Window: Between(began, began.Add(time.Hour)), Scope: OwnScope("gone")}))
	require.True(t, byTime.Partitions[0].MaybeDeleted)
	require.False(t, byTime.Partitions[1].MaybeDeleted)

	cfg.SkipDeleted = true
	r = w.replay(got.router(), cfg)
	result, err = r.Run(t.Context(), early, nil)
	require.NoError(t, err)
	require.EqualValues(t, 4, result.Deleted)
	require.EqualValues(t, 10, result.Position["orders"][0])
	require.Equal(t, Counts{Handled: 6}, result.Counts)
	result, err = r.Run(t.Context(), late, nil)
	require.NoError(t, err)
	require.Equal(t, Counts{Duplicates: 6}, result.Counts)
}

// Events that fail are listed and the replay goes on, also after an interruption. One more than the
// limit ends the replay and is not settled.
func TestRun_Failures(t *testing.T) {
	w := newWorld(t)
	w.write(20, kgo.TryCommit)
	var got runs
	var broken atomic.Bool
	broken.Store(true)
	got.hook = func(e idem.Event[struct{}], _ int) error {
		if broken.Load() && (e.ID == "e006" || e.ID == "e012") {
			return idem.Permanent(errors.New("cannot be booked"))
		}
		return nil
	}
	first := Offsets(Range{Topic: "orders", End: -1})
	r := w.replay(got.router(idem.RetryTopics(time.Minute)), Config{Window: first, Scope: OwnScope("fix")})
	plan := w.plan(r)
	result, err := r.Run(t.Context(), plan, nil)
	require.NoError(t, err)
	require.True(t, result.Complete)
	require.Equal(t, Counts{Handled: 8, DeadLetters: 2}, result.Counts)
	require.Len(t, result.Failed, 2)
	f := result.Failed[0]
	require.Equal(t, dedup.Key{Scope: "billing.replay.fix", Type: "paid", ID: "e006"}, f.Key)
	require.Equal(t, int64(3), f.Offset)
	require.Equal(t, idem.ClassPermanent, f.Class)
	require.NotEmpty(t, f.Error)
	require.False(t, f.Earlier)

	result, err = r.Run(t.Context(), plan, nil)
	require.NoError(t, err)
	require.Equal(t, Counts{Duplicates: 10, FailedBefore: 2}, result.Counts)
	require.True(t, result.Failed[0].Earlier)
	require.Equal(t, int64(3), result.Failed[0].Offset)

	broken.Store(false) // repaired: the events are released, and the replay starts again
	for _, f := range result.Failed {
		require.NoError(t, w.live.Store.(dedup.Operator).Forget(t.Context(), f.Key))
	}
	result, err = r.Run(t.Context(), plan, nil)
	require.NoError(t, err)
	require.Equal(t, Counts{Handled: 2, Duplicates: 8}, result.Counts)
	broken.Store(true)

	limited := Config{Window: first, Scope: OwnScope("strict"), MaxFailed: -1}
	r = w.replay(got.router(), limited)
	result, err = r.Run(t.Context(), Plan{Scope: "billing.replay.strict", Partitions: plan.Partitions}, nil)
	require.ErrorIs(t, err, ErrTooManyFailed)
	require.EqualValues(t, 3, result.Position["orders"][0], "the failed event is not settled")
	require.Equal(t, Counts{Handled: 3}, result.Counts)
	broken.Store(false)
	result, err = w.replay(got.router(), limited).
		Run(t.Context(), Plan{Scope: "billing.replay.strict", Partitions: plan.Partitions}.From(result.Position), nil)
	require.NoError(t, err)
	require.Equal(t, Counts{Handled: 7}, result.Counts, "the event runs again after the repair")
}

// In the scope of the group, an event that fails becomes a dead letter of the group. The topic must
// exist before the first event fails. Events that wait for a delayed retry of the group stay there.
func TestRun_SameScope(t *testing.T) {
	w := newWorld(t)
	w.write(6, kgo.TryCommit)
	store := memstore.New(memstore.Volatile())
	w.live.Store = store
	var done []dedup.Imported
	for _, id := range []string{"e000", "e001"} {
		done = append(done, dedup.Imported{Key: dedup.Key{Scope: "billing", Type: "paid", ID: id}, Retention: 24 * time.Hour})
	}
	_, err := store.Import(t.Context(), done)
	require.NoError(t, err)
	waiting := claim(t, store, "e002")
	require.NoError(t, store.Complete(t.Context(), []dedup.Completion{{Claim: waiting, Retention: time.Hour, Retry: 1}}))

	var got runs
	got.hook = func(e idem.Event[struct{}], _ int) error {
		if e.ID == "e003" {
			return idem.Permanent(errors.New("cannot be booked"))
		}
		return nil
	}
	r := w.replay(got.router(idem.RetryTopics(time.Minute)), Config{Window: all, Scope: SameScope()})
	plan := w.plan(r)
	result, err := r.Run(t.Context(), plan, nil)
	require.ErrorContains(t, err, "orders.billing.dlq")
	require.ErrorContains(t, err, "kafka-topics")
	require.Zero(t, result.Counts)
	require.NoError(t, w.admin.CreateTopic("orders.billing.dlq", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	result, err = r.Run(t.Context(), plan, nil)
	require.NoError(t, err)
	require.Equal(t, Counts{Handled: 2, Duplicates: 3, Waiting: 1, DeadLetters: 1}, result.Counts)
	require.Equal(t, []string{"e004", "e005"}, got.ids())
	require.Len(t, result.Failed, 1)
	bounds, err := w.admin.ListTopics()
	require.NoError(t, err)
	require.NotContains(t, bounds, "orders.billing.retry.1m", "no copy for the live group")
	require.EqualValues(t, 1, endOf(t, w, "orders.billing.dlq"))
}

// claim claims an event in the scope of the group.
func claim(t *testing.T, store dedup.Store, id string) dedup.Claim {
	t.Helper()
	key, token := dedup.Key{Scope: "billing", Type: "paid", ID: id}, dedup.NewToken()
	var answers [1]dedup.Answer
	require.NoError(t, store.Claim(t.Context(), token, time.Minute,
		[]dedup.Request{{Key: key, Retention: time.Hour}}, answers[:]))
	return dedup.Claim{Key: key, Token: token, Fence: answers[0].Fence}
}

func endOf(t *testing.T, w *world, topic string) int64 {
	t.Helper()
	client, err := sarama.NewClient(w.live.Brokers, nil)
	require.NoError(t, err)
	defer client.Close()
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	require.NoError(t, err)
	return end
}

// New refuses settings under which a replay would lose or double events.
func TestNew_Refuses(t *testing.T) {
	w := newWorld(t)
	var got runs
	good := Config{Window: all, Scope: OwnScope("fix")}
	for want, change := range map[string]func(){
		"Brokers is empty": func() { w.live.Brokers = nil },
		"shadow mode":      func() { w.live.Shadow = true },
		"Group is empty":   func() { w.live.Group = "" },
		"retry topic":      func() { w.live.Topics = []string{"orders.billing.retry"} },
		"memstore":         func() { w.live.Store = memstore.New() },
	} {
		before := w.live
		change()
		_, err := New(w.live, got.router(), good)
		require.ErrorContains(t, err, want)
		w.live = before
	}
	_, err := New(w.live, got.router(idem.KeyOrdered(time.Second)), good)
	require.ErrorContains(t, err, "KeyOrdered")
	_, err = New(w.live, got.router(), Config{})
	require.ErrorContains(t, err, "Window is not set")
	require.ErrorContains(t, err, "Scope is not set")
	r, err := New(w.live, got.router(), good)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	_, err = r.Plan(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	_, err = r.Run(t.Context(), Plan{Scope: "billing.replay.fix"}, nil)
	require.ErrorIs(t, err, ErrClosed)
}

// A replay waits for an event that the live group handles at the moment, and one Replay runs once
// at a time.
func TestRun_Busy(t *testing.T) {
	w := newWorld(t)
	w.write(2, kgo.TryCommit)
	store := memstore.New(memstore.Volatile())
	w.live.Store, w.live.Producer = store, refusing{}
	held := claim(t, store, "e000")
	var got runs
	r := w.replay(got.router(), Config{Window: all, Scope: SameScope()})
	plan := w.plan(r)
	ended := make(chan error, 1)
	var result Result
	go func() {
		var err error
		result, err = r.Run(t.Context(), plan, nil)
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(got.ids()) == 1 }, 20*time.Second, time.Millisecond)
	_, err := r.Run(t.Context(), plan, nil)
	require.ErrorIs(t, err, ErrRunning)
	require.NoError(t, store.Complete(t.Context(), []dedup.Completion{{Claim: held, Retention: time.Hour}}))
	require.NoError(t, <-ended)
	require.Equal(t, Counts{Handled: 1, Duplicates: 1}, result.Counts)
	require.Equal(t, []string{"e001"}, got.ids())
}
