package outbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"
)

// newRelayID names a relay: for people who look into the table, and different each time.
func newRelayID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	var random [6]byte
	_, _ = rand.Read(random[:]) // it never fails
	return fmt.Sprintf("%s/%d/%x", strings.ToValidUTF8(cut(host), "?"), os.Getpid(), random)
}

// share is what a relay knows of the shards that it may publish: which, and until when by its own clocks. The lease counts from before the
// request for it was sent, and ends a sixth early, so that what is published under it has some time to arrive.
//
// That the answers of the store are taken in the order of the questions is up to [Relay.hold].
type share struct {
	lease  time.Duration
	asking chan struct{} // one question at a time; not a mutex, since whoever waits may have to give up

	mu     sync.Mutex
	leases map[int]Lease
	until  deadline  // the leases end
	since  time.Time // when the last question was asked that was answered
	shared time.Time // the same with share
	tried  time.Time // when the last question ended
}

func newShare(lease time.Duration) share { return share{lease: lease, asking: make(chan struct{}, 1)} }

// deadline is a point in time on both clocks. The monotonic one stands still while a machine is suspended, the wall clock may be set: what
// says first that time is over counts (rule 49).
type deadline struct{ mono, wall time.Time }

func newDeadline(t time.Time) deadline { return deadline{mono: t, wall: t.Round(0)} }

func (d deadline) over(mono, wall time.Time) bool {
	return !mono.Before(d.mono) || !wall.Before(d.wall)
}

// held are the shards that may be published now.
func (s *share) held() map[int]Lease {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until.over(now, now.Round(0)) {
		return nil
	}
	return maps.Clone(s.leases)
}

// answered notes what a question that was asked at began found out.
func (s *share) answered(began time.Time, leases []Lease, shared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = make(map[int]Lease, len(leases))
	for _, l := range leases {
		s.leases[l.Shard] = l
	}
	s.since, s.tried = began, time.Now()
	s.until = newDeadline(began.Add(s.lease - s.lease/6))
	if shared {
		s.shared = began
	}
}

// failed notes that a question was not answered.
func (s *share) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Now()
}

// drop forgets shards that another relay has got.
func (s *share) drop(lost []int, epochs map[int]Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shard := range lost {
		if s.leases[shard] == epochs[shard] { // not taken back meanwhile
			delete(s.leases, shard)
		}
	}
}

func (s *share) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = nil
}

// shareIn is when the shards are to be shared out anew.
func (s *share) shareIn() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.shared.Add(s.lease / 3))
}

// renewIn is when the leases are to be renewed: when a third is over, and again every twelfth after an error.
func (s *share) renewIn() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(time.Until(s.since.Add(s.lease/3)), time.Until(s.tried.Add(s.lease/12)))
}

// silent is since when the store has not said what is held. Zero: never.
func (s *share) silent() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

// keep renews the leases until ctx ends, also while the loop waits for the broker.
func (r *Relay) keep(ctx context.Context) {
	for pause(ctx, nil, max(r.share.renewIn(), time.Millisecond)) {
		if r.share.silent().IsZero() { // the loop has still to ask for something that could be renewed
			pause(ctx, nil, r.cfg.Lease/12)
			continue
		}
		_ = r.hold(ctx, false) // it was told, and what could not be renewed ends
	}
}

// hold asks the store what is held. With shared, shards are given up and taken, which happens between two rounds only: if there is no answer
// something may have been given up all the same, and there is no round before there is one.
func (r *Relay) hold(ctx context.Context, shared bool) error {
	select {
	case r.share.asking <- struct{}{}:
		defer func() { <-r.share.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !shared && r.share.renewIn() > 0 { // somebody has asked meanwhile
		return nil
	}
	call, cancel := context.WithTimeout(ctx, r.cfg.Lease/4)
	defer cancel()
	began := time.Now()
	leases, err := r.cfg.Store.Hold(call, r.id, r.cfg.Lease, shared)
	if err != nil {
		r.share.failed()
		if ctx.Err() == nil {
			r.health.store.set(ctx, "hold", err)
		}
		return err
	}
	r.share.answered(began, leases, shared)
	r.health.store.clear(ctx, "hold")
	return nil
}
