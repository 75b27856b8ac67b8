package outbox

import (
	"sync"
	"time"
)

// shardLeases are the shards that a relay may publish, and the end of their leases by its own
// clocks. A lease counts from before the request was sent. The end is a sixth early, so that
// messages published under it have time to arrive. Safe for concurrent use.
//
// The caller passes the answers of the store in the order of the requests: see [shareKeeper].
type shardLeases struct {
	lease time.Duration

	mu     sync.Mutex
	leases map[int]heldLease
	since  time.Time // when the last request that got an answer was sent
	shared time.Time // when the last one that shared out the shards was sent
	tried  time.Time // when the last request ended
}

// heldLease is a lease without its rest, and its end by the relay's clocks.
type heldLease struct {
	Lease
	until deadline
}

// deadline is a point in time on both clocks; the first clock to reach it counts (rule 49). The
// monotonic clock stands still while a machine is suspended. The wall clock can be set.
type deadline struct{ mono, wall time.Time }

func newDeadline(t time.Time) deadline { return deadline{mono: t, wall: t.Round(0)} }

func (d deadline) over(mono, wall time.Time) bool {
	return !mono.Before(d.mono) || !wall.Before(d.wall)
}

// held returns the shards that may be published now.
func (s *shardLeases) held() map[int]Lease {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	valid := make(map[int]Lease, len(s.leases))
	for shard, l := range s.leases {
		if !l.until.over(now, now.Round(0)) {
			valid[shard] = l.Lease
		}
	}
	return valid
}

// answered notes the leases that a request sent at began has got. A lease that the request could
// not renew ends as early as it did before.
func (s *shardLeases) answered(began time.Time, leases []Lease, shared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = make(map[int]heldLease, len(leases))
	for _, l := range leases {
		left := s.lease
		if l.Left != 0 {
			left = min(left, l.Left)
		}
		l.Left = 0
		s.leases[l.Shard] = heldLease{l, newDeadline(began.Add(left - s.lease/6))}
	}
	s.since, s.tried = began, time.Now()
	if shared {
		s.shared = began
	}
}

// unanswered notes that a request got no answer.
func (s *shardLeases) unanswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Now()
}

// drop forgets the shards that another relay has taken, unless the relay holds them anew.
func (s *shardLeases) drop(lost []int, epochs map[int]Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shard := range lost {
		if s.leases[shard].Lease == epochs[shard] {
			delete(s.leases, shard)
		}
	}
}

func (s *shardLeases) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = nil
}

// shareIn returns the time until the shards are to be shared out again: a third of a lease.
func (s *shardLeases) shareIn() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.shared.Add(s.lease / 3))
}

// renewIn returns the time until the leases are to be renewed: after a third of a lease, and after
// an error again every twelfth.
func (s *shardLeases) renewIn() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(time.Until(s.since.Add(s.lease/3)), time.Until(s.tried.Add(s.lease/12)))
}

// lastAnswer returns when the last request that got an answer was sent. Zero: no request has had an
// answer.
func (s *shardLeases) lastAnswer() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}
