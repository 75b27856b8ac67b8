package ops

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// callTable has the running calls of handlers, in shards. A call locks one shard twice.
type callTable struct {
	shards [callShards]callShard
}

const (
	callShards   = 64
	callsInShard = 128
)

type callShard struct {
	mu   sync.Mutex
	all  map[*observe.Call]callState
	more int // that run and found no room
	_    [64]byte
}

// callState is the shown part of a call. Its strings belong to the record, which lives as long as
// the call.
type callState struct {
	group     string
	topic     string
	partition int32
	offset    int64
	key       dedup.Key
	events    int
	began     time.Time
}

func (t *callTable) shard(m *idem.Message) *callShard {
	return &t.shards[(uint64(m.Offset)+7*uint64(m.Partition))%callShards]
}

// BeginCall remembers that a handler runs.
func (m *Monitor) BeginCall(ctx context.Context, c *observe.Call) context.Context {
	msg := c.Message(0)
	s := m.calls.shard(msg)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= callsInShard {
		s.more++
		return ctx
	}
	if s.all == nil {
		s.all = make(map[*observe.Call]callState)
	}
	s.all[c] = callState{c.Group, msg.Topic, msg.Partition, msg.Offset, c.Key(0), c.Len(), c.Began}
	return ctx
}

// EndCall forgets the call, and counts failures.
func (m *Monitor) EndCall(_ context.Context, c *observe.Call) {
	s := m.calls.shard(c.Message(0))
	s.mu.Lock()
	if _, ok := s.all[c]; ok {
		delete(s.all, c)
	} else {
		s.more = max(s.more-1, 0)
	}
	s.mu.Unlock()
	if c.Err != nil {
		m.count(m.moment(), kindFailed, failedOf(c))
	}
}

// failedOf is the number of events of a call that have failed. A stop is no failure.
func failedOf(c *observe.Call) int {
	var named idem.BatchError
	switch {
	case errors.Is(c.Err, context.Canceled):
		return 0
	case c.Batch && errors.As(c.Err, &named):
		return min(len(named), c.Len())
	}
	return c.Len()
}

// The ages at which a running call counts as slow, and as stuck.
const (
	callSlow = 10 * time.Second
	callHung = time.Minute
)

// maxRunning is how many calls are listed, the oldest first.
const maxRunning = 100

// runningCalls returns the running calls of a group, the oldest first, and the number of others.
func (m *Monitor) runningCalls(group string) (all []runningCall, more int) {
	now := time.Now()
	for i := range m.calls.shards {
		s := &m.calls.shards[i]
		s.mu.Lock()
		more += s.more
		for _, c := range s.all {
			if group != "" && c.group != "" && c.group != group {
				continue
			}
			r := runningCall{
				Topic: c.topic, Partition: c.partition, Offset: c.offset, Key: c.key,
				Events: c.events, For: now.Sub(c.began), Level: "ok",
			}
			if r.For > callHung {
				r.Level = "bad"
			} else if r.For > callSlow {
				r.Level = "warn"
			}
			all = append(all, r)
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b runningCall) int {
		return cmp.Or(
			cmp.Compare(b.For, a.For), cmp.Compare(a.Topic, b.Topic),
			cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset),
		)
	})
	if len(all) > maxRunning {
		more += len(all) - maxRunning
		all = all[:maxRunning]
	}
	return all, more
}

// runningCall is a call of a handler that has not returned.
type runningCall struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       dedup.Key
	Events    int
	For       time.Duration
	Level     string
}

// EventLink leads to the look-up of the event.
func (c runningCall) EventLink() string { return eventLink(c.Key) }
