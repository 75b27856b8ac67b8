package outbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// endTimeout bounds each of the last two calls of a store: to settle, and to leave.
const endTimeout = 3 * time.Second

// newRelayID returns a new name for a relay, which a person can read in the table.
func newRelayID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	var random [6]byte
	_, _ = rand.Read(random[:]) // it never fails
	return fmt.Sprintf("%s/%d/%x", strings.ToValidUTF8(cut(host), "?"), os.Getpid(), random)
}

// shareKeeper requests the relay's share of the shards from the store, and renews the leases. Safe
// for concurrent use.
type shareKeeper struct {
	shardLeases
	store  Store
	relay  string
	health *health
	log    *slog.Logger
	asking chan struct{} // one request at a time; not a mutex, so that a wait can end with ctx
}

func newShareKeeper(cfg *RelayConfig, relay string, h *health) *shareKeeper {
	return &shareKeeper{
		shardLeases: shardLeases{lease: cfg.Lease},
		store:       cfg.Store, relay: relay, health: h, log: cfg.Logger,
		asking: make(chan struct{}, 1),
	}
}

// renew renews the leases until ctx ends, also while the loop waits for the broker.
func (s *shareKeeper) renew(ctx context.Context) {
	for pause(ctx, nil, max(s.renewIn(), time.Millisecond)) {
		if s.lastAnswer().IsZero() { // the loop has not yet got a lease to renew
			pause(ctx, nil, s.lease/12)
			continue
		}
		_ = s.hold(ctx, false) // hold has logged the error, and leases that are not renewed end
	}
}

// hold renews the leases. With shared it also gives shards up and takes free ones, which happens
// between two rounds only. Without an answer the store may have given shards up all the same. So no
// round starts before there is an answer.
func (s *shareKeeper) hold(ctx context.Context, shared bool) error {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !shared && s.renewIn() > 0 { // another call has renewed them meanwhile
		return nil
	}
	call, cancel := context.WithTimeout(ctx, s.lease/4)
	defer cancel()
	began := time.Now()
	leases, err := s.store.Hold(call, s.relay, s.lease, shared)
	if err != nil {
		s.unanswered()
		if ctx.Err() == nil {
			s.health.store.set(ctx, "hold", err)
		}
		return err
	}
	s.answered(began, leases, shared)
	s.health.store.clear(ctx, "hold")
	return nil
}

// leave gives all shards up. If that fails, other relays take them when the leases end. A relay
// that never had an answer had no shard.
func (s *shareKeeper) leave(ctx context.Context) {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	none := s.lastAnswer().IsZero()
	s.forget()
	if err := s.store.Leave(late, s.relay); err != nil && !none {
		s.log.WarnContext(ctx, "outbox relay ends, its share is free when its lease is over",
			"relay", s.relay, "lease", s.lease, "error", errorText(err))
		return
	}
	s.log.InfoContext(ctx, "outbox relay ends", "relay", s.relay)
}
