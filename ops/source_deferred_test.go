package ops

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/outbox"
)

// deferKeys defers one event in each of n queues of a partition. The last blocked of them are
// blocked.
func deferKeys(t *testing.T, s dedup.Deferrer, part dedup.DeferredPartition, n, blocked int) {
	t.Helper()
	events := make([]dedup.Deferred, n)
	for i := range events {
		id := fmt.Sprintf("%d-%04d", part.Partition, i)
		events[i] = dedup.Deferred{
			Key: dedup.Key{Scope: part.Scope, Type: "paid", ID: id}, Queue: id,
			Origin: dedup.Origin{Topic: part.Topic, Partition: part.Partition, Offset: int64(i)},
		}
	}
	require.NoError(t, s.Defer(t.Context(), part, events))
	for _, e := range events[n-blocked:] {
		e.Blocked = true
		_, err := s.Postpone(t.Context(), part, e)
		require.NoError(t, err)
	}
}

// countingDeferrer counts the questions.
type countingDeferrer struct {
	*memstore.Store
	asked int
}

func (s *countingDeferrer) Queues(ctx context.Context, part dedup.DeferredPartition, after string, limit int) ([]dedup.Queue, error) {
	s.asked++
	return s.Store.Queues(ctx, part, after, limit)
}

// A partition with many queues does not hide the blocked key of another one.
func TestDeferred_ManyQueues(t *testing.T) {
	part := func(id int32) dedup.DeferredPartition {
		return dedup.DeferredPartition{Scope: "billing", Topic: "orders", Partition: id}
	}
	for name, c := range map[string]struct {
		queues, blocked map[int32]int // by partition
		sums            queueSums
		listed          int
		more            bool
		asked           int
	}{
		"none":                         {asked: 8},
		"a few":                        {queues: map[int32]int{0: 3, 7: 2}, blocked: map[int32]int{7: 1}, sums: queueSums{5, 5, 1}, listed: 5, asked: 8},
		"a full page":                  {queues: map[int32]int{0: 200}, sums: queueSums{200, 200, 0}, listed: 200, asked: 9},
		"blocked in another partition": {queues: map[int32]int{0: 201, 7: 1}, blocked: map[int32]int{7: 1}, sums: queueSums{202, 202, 1}, listed: 201, asked: 9},
		"blocked on a later page":      {queues: map[int32]int{0: 950}, blocked: map[int32]int{0: 2}, sums: queueSums{950, 950, 2}, listed: 202, asked: 12},
		"many blocked ones":            {queues: map[int32]int{0: 900}, blocked: map[int32]int{0: 900}, sums: queueSums{900, 900, 900}, listed: 400, asked: 12},
		"too many":                     {queues: map[int32]int{0: 3000, 7: 1}, blocked: map[int32]int{7: 1}, sums: queueSums{2001, 2001, 1}, listed: 201, more: true, asked: 17},
	} {
		t.Run(name, func(t *testing.T) {
			s := &countingDeferrer{Store: memstore.New(memstore.Volatile())}
			var parts []dedup.DeferredPartition
			for id := range int32(8) {
				parts = append(parts, part(id))
				if n := c.queues[id]; n > 0 {
					deferKeys(t, s, part(id), n, c.blocked[id])
				}
			}
			state, err := lookAtQueues(t.Context(), []deadletters.NamedStore{{Name: "memory", Store: s}}, parts)
			require.NoError(t, err)
			require.Equal(t, c.sums, state.sums())
			require.Len(t, state.Queues, c.listed)
			require.Equal(t, c.more, state.More)
			require.Equal(t, c.asked, s.asked)
			seen := map[string]bool{}
			for _, q := range state.Queues {
				require.False(t, seen[q.Name], q.Name)
				seen[q.Name] = true
			}
		})
	}
}

// Of more partitions than the page looks at, the others are not taken for empty.
func TestAcrossScopes(t *testing.T) {
	of := make([]partitionID, maxDeferredPartitions+1)
	for i := range of {
		of[i] = partitionID{"", "orders", int32(i)}
	}
	all, cut := acrossScopes([]string{"a", "b"}, of)
	require.True(t, cut)
	require.Len(t, all, 2*maxDeferredPartitions)
	all, cut = acrossScopes([]string{"a", "b"}, of[1:])
	require.False(t, cut)
	require.Len(t, all, 2*maxDeferredPartitions)
	require.Equal(t, dedup.DeferredPartition{Scope: "b", Topic: "orders", Partition: maxDeferredPartitions}, all[len(all)-1])
}

// topicClient is a client for topics with a number of partitions.
type topicClient struct {
	sarama.Client
	partitions int32
}

func (c topicClient) Partitions(string) (all []int32, err error) {
	for id := range c.partitions {
		all = append(all, id)
	}
	return all, nil
}

// Only the brokers know all partitions. Without Kafka, those of other processes are not taken for
// empty.
func TestDeferred_UnknownPartitions(t *testing.T) {
	knows := func(n int32) *Monitor {
		m := NewMonitor()
		for id := range n {
			m.ObserveProgress(t.Context(), observe.ProgressEvent{Topic: "orders", Partition: id, Next: 1, HighWater: 2})
		}
		return m
	}
	brokers := func(n int32) *kafkaSource { return newKafkaSource(Config{Client: topicClient{partitions: n}}) }
	for name, c := range map[string]struct {
		kafka   *kafkaSource
		monitor *Monitor
		cannot  bool // the store does not defer
		queues  int  // of orders/0 and orders/7 that are listed
		more    bool
	}{
		"Kafka":                               {kafka: brokers(8), queues: 2},
		"Kafka and a monitor":                 {kafka: brokers(8), monitor: knows(1), queues: 2},
		"as many partitions as are looked at": {kafka: brokers(maxDeferredPartitions), queues: 2},
		"one more":                            {kafka: brokers(maxDeferredPartitions + 1), queues: 2, more: true},
		"a monitor only":                      {monitor: knows(1), queues: 1, more: true},
		"neither":                             {more: true},
		"no store defers":                     {cannot: true},
		"no store defers, too many":           {kafka: brokers(maxDeferredPartitions + 1), cannot: true},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(memstore.Volatile())
			for _, id := range []int32{0, 7} {
				deferKeys(t, store, dedup.DeferredPartition{Scope: "a", Topic: "orders", Partition: id}, 1, 1)
			}
			cfg := Config{Monitor: c.monitor, Scopes: []string{"a"}}
			cfg.Consumer.Topics = []string{"orders"}
			src := &deferredSource{stores: []deadletters.NamedStore{{Name: "memory", Store: store}}, cfg: cfg, kafka: c.kafka}
			if c.cannot {
				src.stores = []deadletters.NamedStore{{Name: "log", Store: struct{ dedup.Store }{}}}
			}
			state, err := src.list(t.Context())
			require.NoError(t, err)
			require.Len(t, state.Queues, c.queues)
			require.Equal(t, c.more, state.More)
			require.Equal(t, c.cannot, len(state.Cannot) == 1)
		})
	}
}

// A figure that was cut is a lower bound, and the start page names what was not looked at.
func TestStart_CutFigures(t *testing.T) {
	state := deferredState{Queues: make([]deferredQueue, 200), More: true}
	for i := range state.Queues {
		state.Queues[i].Length = 1
	}
	claims := []storeClaims{{Records: make([]stuckRecord, maxStuck), More: true}, {Records: make([]stuckRecord, 1)}}
	full := outbox.Backlog{Waiting: maxCounted, Oldest: time.Minute, Parked: maxCounted, Blocked: maxCounted}
	s := &startView{}
	s.glanceDeferred(part[deferredState]{Value: state})
	s.glanceClaims(part[[]storeClaims]{Value: claims})
	s.glanceOutbox(part[outboxState]{Value: outboxState{Backlog: full}})
	require.Equal(t, "200 or more", s.Glance[0].Value)
	require.Equal(t, "in 200 queues or more", s.Glance[0].Note)
	require.Equal(t, "101 or more", s.Glance[1].Value)
	require.Equal(t, "100\u202f000 or more", s.Glance[2].Value)
	require.Equal(t, []string{"Deferred events: blocked keys were looked for in 200 queues only"}, s.Unknown)
	require.Len(t, s.Alerts, 2)
	require.Equal(t, "At least 101 claims without a living holder", s.Alerts[0].Title)
	require.Equal(t, "At least 100\u202f000 outbox rows parked", s.Alerts[1].Title)
	require.Contains(t, s.Alerts[1].Text, "100\u202f000 or more wait behind them")

	state.More, claims[0].More = false, false
	state.Queues[7].Blocked = true
	state.Unlisted = queueSums{Queues: 5, Events: 6, Blocked: 1}
	s = &startView{}
	s.glanceDeferred(part[deferredState]{Value: state})
	s.glanceClaims(part[[]storeClaims]{Value: claims})
	s.glanceOutbox(part[outboxState]{Value: outboxState{Backlog: outbox.Backlog{Waiting: maxCounted - 1, Parked: 1}}})
	require.Equal(t, "206", s.Glance[0].Value)
	require.Equal(t, "in 205 queues", s.Glance[0].Note)
	require.Equal(t, "101", s.Glance[1].Value)
	require.Equal(t, "99\u202f999", s.Glance[2].Value)
	require.Empty(t, s.Unknown)
	require.Equal(t, "2 keys blocked", s.Alerts[0].Title)
	require.Equal(t, "101 claims without a living holder", s.Alerts[1].Title)
	require.Equal(t, "1 outbox row parked", s.Alerts[2].Title)
}

// The pages name the queues that are not listed, and those that were not looked at.
func TestPages_CutFigures(t *testing.T) {
	state := deferredState{
		Queues:   []deferredQueue{{Topic: "orders", Name: "k1", Length: 3, Blocked: true}},
		Unlisted: queueSums{Queues: 4, Events: 5, Blocked: 2}, More: true,
	}
	s := serve(t, quietConfig(), sources{
		deferred: &fakeSource[deferredState]{value: state},
		outbox:   &fakeSource[outboxState]{value: outboxState{Backlog: outbox.Backlog{Waiting: maxCounted}}},
	})
	body := s.get("deferred").body
	for _, want := range []string{
		"At least 8 events in 5 queues", "3 or more blocked", "Not shown: 4 queues, of which 2 blocked.",
		"Other partitions or queues were not looked at: they may have blocked keys.",
	} {
		require.Contains(t, body, want)
	}
	require.Contains(t, s.get("outbox").body, "<b>100\u202f000 or more</b>")
	body = s.get("").body
	require.Contains(t, body, "At least 3 keys blocked")
	require.Contains(t, body, "blocked keys were looked for in 5 queues only")
}

// Partitions that were not looked at are not empty, also if no queue was found in the others.
func TestPages_CutWithoutQueues(t *testing.T) {
	for name, state := range map[string]deferredState{
		"all stores defer":   {More: true},
		"one does not defer": {More: true, Cannot: []string{"redis"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, quietConfig(), sources{deferred: &fakeSource[deferredState]{value: state}})
			body := s.get("deferred").body
			require.NotContains(t, body, "No deferred events")
			require.Contains(t, body, "Other partitions or queues were not looked at")
			v := &startView{}
			v.glanceDeferred(part[deferredState]{Value: state})
			require.Equal(t, []string{"Deferred events: blocked keys were looked for in 0 queues only"}, v.Unknown)
			require.Equal(t, "0 or more", v.Glance[0].Value)
		})
	}
	s := serve(t, quietConfig(), sources{deferred: &fakeSource[deferredState]{}})
	body := s.get("deferred").body
	require.Contains(t, body, "No deferred events")
	require.NotContains(t, body, "not looked at")
}
