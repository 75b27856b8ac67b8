package sqlstore

import (
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
	"github.com/stretchr/testify/require"
)

// rule 4: each event has one place, at the end of its queue. A queue without events is not made.
func TestPlaceEvents_Rule4(t *testing.T) {
	now := time.UnixMicro(1_700_000_000_000_000).UTC()
	long := strings.Repeat("k", decision.ShortQueue+1)
	event := func(queue, id string, wait time.Duration) dedup.Deferred {
		return dedup.Deferred{Key: dedup.Key{Scope: "s", ID: id}, Queue: queue, Wait: wait}
	}
	old := func() *deferredQueue {
		return &deferredQueue{key: []byte("old"), partition: 1, next: 8, head: 5, due: now,
			blocked: true}
	}
	queue := func(name string, next int64, due time.Time) *deferredQueue {
		q := &deferredQueue{key: decision.QueueKey(name), partition: 2, next: next, head: 1, due: due}
		if name == long {
			q.name = []byte(long)
		}
		return q
	}
	type place struct {
		id  string
		key []byte
		seq int64
		due time.Time
	}
	moved := old()
	moved.partition = 2
	grown := old()
	grown.partition, grown.next = 2, 10
	for _, c := range []struct {
		name   string
		events []dedup.Deferred
		placed []place
		added  []*deferredQueue
		old    *deferredQueue
	}{
		{name: "nothing", old: old()},
		{name: "behind others",
			events: []dedup.Deferred{event("old", "b", 0), event("old", "a", time.Hour)},
			placed: []place{{"a", []byte("old"), 9, now.Add(time.Hour)},
				{"b", []byte("old"), 8, now}},
			old: grown},
		{name: "new queues, in the order of their keys",
			events: []dedup.Deferred{event("z", "a", 0), event("", "b", time.Nanosecond),
				event("z", "c", -1), event(long, "d", 0)},
			placed: []place{{"a", []byte("z"), 1, now},
				{"b", []byte{}, 1, now.Add(time.Microsecond)}, {"c", []byte("z"), 2, now},
				{"d", decision.QueueKey(long), 1, now}},
			added: []*deferredQueue{queue("", 2, now.Add(time.Microsecond)), queue(long, 2, now),
				queue("z", 3, now)},
			old: old()},
		{name: "known events",
			events: []dedup.Deferred{event("old", "known", 0), event("new", "known", 0)},
			old:    moved},
		{name: "the same event twice, and under another Kafka key",
			events: []dedup.Deferred{event("new", "a", 0), event("new", "a", time.Hour),
				event("old", "a", 0), event("other", "a", 0)},
			placed: []place{{"a", []byte("new"), 1, now}},
			added:  []*deferredQueue{queue("new", 2, now)}, old: moved},
	} {
		t.Run(c.name, func(t *testing.T) {
			queues := map[string]*deferredQueue{"old": old()}
			known := map[dedup.Key]bool{{Scope: "s", ID: "known"}: true}
			placed, added := placeEvents(queues, known, 2, c.events, now)
			var got []place
			for _, p := range placed {
				got = append(got, place{p.event.Key.ID, p.key, p.seq, p.due})
			}
			require.Equal(t, c.placed, got)
			require.Equal(t, c.added, added)
			require.Equal(t, c.old, queues["old"])
		})
	}
}

func TestWaitFor(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{
		-time.Hour: 0, 0: 0, 1: time.Microsecond, time.Microsecond: time.Microsecond,
		time.Microsecond + 1: 2 * time.Microsecond, 1<<63 - 1: (1<<63 - 1) / 1000 * 1000,
	} {
		require.Equal(t, want, waitFor(wait), wait)
	}
}

// rules 3 and 4: an event moves to a later position only, and a later position is not removed.
func TestPlaceOfEvent_Rule3_Rule4(t *testing.T) {
	at := func(generation, retry uint32) dedup.Position {
		return dedup.Position{Generation: generation, Retry: retry}
	}
	p := &deferredPlace{queue: []byte("q"), position: at(1, 2)}
	for _, c := range []struct {
		queue                      string
		to                         dedup.Position
		postpones, blocks, removes bool
	}{
		{"q", at(0, 0), false, false, false},
		{"q", at(0, 9), false, false, false},
		{"q", at(1, 1), false, false, false},
		{"q", at(1, 2), false, true, true},
		{"q", at(1, 3), true, true, true},
		{"q", at(2, 0), true, true, false},
		{"r", at(1, 3), false, false, false},
	} {
		e := &dedup.Deferred{Position: c.to}
		require.Equal(t, c.postpones, p.postpones([]byte(c.queue), e), "%+v", c)
		e.Blocked = true
		require.Equal(t, c.blocks, p.postpones([]byte(c.queue), e), "%+v", c)
		require.Equal(t, c.removes, p.removes([]byte(c.queue), c.to), "%+v", c)
	}
}
