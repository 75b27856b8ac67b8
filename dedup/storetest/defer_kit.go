package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// deferral has the verbs of a store that defers. The verbs fail the test instead of returning
// errors.
type deferral struct {
	*kit
	p, peer dedup.Deferrer
}

func deferralOf(k *kit) *deferral {
	k.Helper()
	return &deferral{kit: k, p: deferrer(k, k.s), peer: deferrer(k, k.peer)}
}

func deferrer(k *kit, s dedup.Store) dedup.Deferrer {
	k.Helper()
	p, ok := s.(dedup.Deferrer)
	require.True(k, ok, "%T is no dedup.Deferrer", s)
	return p
}

var part = dedup.DeferredPartition{Scope: "orders", Topic: "orders", Partition: 3}

// waiting is an event to defer in queue.
func waiting(queue, id string, wait time.Duration) dedup.Deferred {
	return dedup.Deferred{Key: key(id), Queue: queue, Wait: wait, Origin: origin(3, 7),
		Data: []byte("data of " + id)}
}

func (k *deferral) deferEvent(events ...dedup.Deferred) {
	k.Helper()
	require.NoError(k, k.p.Defer(k.ctx, part, events))
}

// due requires the heads that are due to be those, in this order, and returns how long until the
// next.
func (k *deferral) due(want ...string) time.Duration {
	k.Helper()
	heads, next, err := k.peer.Due(k.ctx, part, 100)
	require.NoError(k, err)
	require.Equal(k, want, ids(heads), "due")
	for _, e := range heads {
		require.LessOrEqual(k, e.Wait, time.Duration(0), "%s is due", e.Key)
		require.False(k, e.Blocked, "%s is due", e.Key)
	}
	return next
}

func (k *deferral) remove(queue, id string, empty bool) {
	k.Helper()
	got, err := k.p.Remove(k.ctx, part, queue, dedup.Deferred{Key: key(id)})
	require.NoError(k, err)
	require.Equal(k, empty, got, "the queue %q has ended with %s", queue, id)
}

// head requires the head of a queue to be this event. An empty ID requires an empty queue.
func (k *deferral) head(queue, id string) dedup.Deferred {
	k.Helper()
	e, ok, err := headOf(k.ctx, k.peer, part, queue)
	require.NoError(k, err)
	require.Equal(k, id != "", ok, "a head of %q: %s", queue, e.Key)
	if ok {
		require.Equal(k, key(id), e.Key, "head of %q", queue)
		require.Equal(k, queue, e.Queue)
	}
	return e
}

// lengths requires the queues of a partition to be these, in order.
func (k *deferral) lengths(l dedup.DeferredPartition, want ...dedup.Queue) []dedup.Queue {
	k.Helper()
	got, err := k.peer.Queues(k.ctx, l, "", 100)
	require.NoError(k, err)
	bare := make([]dedup.Queue, 0, len(got))
	for _, q := range got {
		q.Wait = 0
		bare = append(bare, q)
	}
	if len(want) == 0 {
		want = []dedup.Queue{}
	}
	require.Equal(k, want, bare, "queues of %v", l)
	return got
}

func ids(events []dedup.Deferred) []string {
	var out []string
	for i := range events {
		out = append(out, events[i].Key.ID)
	}
	return out
}

// byID sorts events by their IDs.
func byID(events []dedup.Deferred) []dedup.Deferred {
	slices.SortFunc(events, func(a, b dedup.Deferred) int { return a.Key.Compare(b.Key) })
	return events
}

func queue(name string, length int) dedup.Queue { return dedup.Queue{Name: name, Length: length} }

// like requires a returned event to equal the deferred one, except for the wait.
func (k *kit) like(want, got dedup.Deferred) {
	k.Helper()
	sameOrigin(k, want.Origin, got.Origin)
	got.Origin, got.Wait, want.Wait = want.Origin, 0, 0
	if len(want.Data) == 0 {
		require.Empty(k, got.Data)
		got.Data = want.Data
	}
	require.Equal(k, want, got)
}

// waits calls fn, which lets the head of a queue wait. The head is the last entry of want.
//
// The function that waits returns requires the head to be due when the wait is over, neither
// sooner nor later. Until then the other entries of want are due. No pace of the machine changes
// the result.
func (k *deferral) waits(wait time.Duration, fn func()) func(want ...string) time.Duration {
	began := time.Now()
	fn()
	begun := time.Now()
	return func(want ...string) time.Duration {
		k.Helper()
		for {
			asked := time.Now()
			heads, next, err := k.peer.Due(k.ctx, part, 100)
			require.NoError(k, err)
			if len(heads) == len(want) {
				require.GreaterOrEqual(k, time.Since(began), wait, "%s is due too soon",
					want[len(want)-1])
				return k.due(want...)
			}
			require.Equal(k, want[:len(want)-1], ids(heads), "due")
			require.Positive(k, next)
			require.LessOrEqual(k, next, wait)
			require.LessOrEqual(k, asked.Sub(begun), wait+time.Millisecond, "%s is due too late",
				want[len(want)-1])
			k.h.Sleep(next + time.Millisecond)
		}
	}
}

// headOf returns the first event of a queue.
func headOf(ctx context.Context, p dedup.Deferrer, part dedup.DeferredPartition,
	queue string) (head dedup.Deferred, ok bool, err error) {
	first, err := p.First(ctx, part, queue, 1)
	if len(first) == 0 {
		return dedup.Deferred{}, false, err
	}
	return first[0], true, err
}

// pause makes two moments distinguishable.
func (k *deferral) pause() { k.h.Sleep(3 * time.Millisecond) }
