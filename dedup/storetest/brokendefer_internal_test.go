package storetest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

const (
	severalCase = "defer: several events are read, found and removed in one call"
	walkCase    = "defer: random: thousands of calls agree with a model"
)

// Each case refutes the store that breaks a promise of dedup.Deferrer.
func TestBrokenDeferrersFail(t *testing.T) {
	t.Setenv("IDEM_SEED", "7")
	sound := inMemory(func(s *memstore.Store) dedup.Store { return s })
	for name, store := range map[string]func(*memstore.Store) dedup.Store{
		"First reverses the events behind the head": func(s *memstore.Store) dedup.Store {
			return &reversesFirst{s}
		},
		"Remove judges all by the first position": func(s *memstore.Store) dedup.Store {
			return &judgesFirst{s}
		},
		"DeferredOf returns one event": func(s *memstore.Store) dedup.Store {
			return &findsOne{s}
		},
	} {
		for _, c := range []string{severalCase, walkCase} {
			t.Run(name+"/"+c, func(t *testing.T) { refuted(t, c, inMemory(store), sound) })
		}
	}
}

// An outage must not look like an event that is not deferred.
func TestDeferrerWithoutItsServerFails(t *testing.T) {
	down := func(of func(*memstore.Store) dedup.Store) Harness {
		h := inMemory(of)
		h.Down, h.Missing = h.New, []Ability{Check}
		return h
	}
	refuted(t, "defer: a server that is down is unavailable (R-19)",
		down(func(s *memstore.Store) dedup.Store { return &findsNone{unreachable{s}} }),
		down(func(s *memstore.Store) dedup.Store { return &unreachable{s} }))
}

// A store may have a horizon that the harness cannot set.
func TestDeferrerWithAHorizonOfItsOwnPasses(t *testing.T) {
	h := inMemory(newAgeing)
	h.Around = synctest.Test
	RunDeferrer(t, h)
}

type reversesFirst struct{ *memstore.Store }

func (s *reversesFirst) First(ctx context.Context, at dedup.DeferredPartition, queue string,
	limit int) ([]dedup.Deferred, error) {
	first, err := s.Store.First(ctx, at, queue, limit)
	if len(first) > 1 {
		slices.Reverse(first[1:])
	}
	return first, err
}

// judgesFirst removes the events behind the first one at any position.
type judgesFirst struct{ *memstore.Store }

func (s *judgesFirst) Remove(ctx context.Context, at dedup.DeferredPartition, queue string,
	events ...dedup.Deferred) (bool, error) {
	events = slices.Clone(events)
	for i := 1; i < len(events); i++ {
		_, e, ok, err := s.FindDeferred(ctx, at.Scope, at.Topic, events[i].Key)
		if err != nil {
			return false, err
		}
		if ok {
			events[i].Position = e.Position
		}
	}
	return s.Store.Remove(ctx, at, queue, events...)
}

type findsOne struct{ *memstore.Store }

func (s *findsOne) DeferredOf(ctx context.Context, scope, topic string, keys ...dedup.Key) (
	[]dedup.Deferred, error) {
	found, err := s.Store.DeferredOf(ctx, scope, topic, keys...)
	return found[:min(1, len(found))], err
}

// unreachable is a store with a server that is down.
type unreachable struct{ *memstore.Store }

func (s *unreachable) Defer(context.Context, dedup.DeferredPartition, []dedup.Deferred) error {
	return dedup.ErrUnavailable
}

func (s *unreachable) Queues(context.Context, dedup.DeferredPartition, string, int) (
	[]dedup.Queue, error) {
	return nil, dedup.ErrUnavailable
}

func (s *unreachable) Due(context.Context, dedup.DeferredPartition, int) ([]dedup.Deferred,
	time.Duration, error) {
	return nil, 0, dedup.ErrUnavailable
}

func (s *unreachable) First(context.Context, dedup.DeferredPartition, string, int) (
	[]dedup.Deferred, error) {
	return nil, dedup.ErrUnavailable
}

func (s *unreachable) Postpone(context.Context, dedup.DeferredPartition, dedup.Deferred) (bool,
	error) {
	return false, dedup.ErrUnavailable
}

func (s *unreachable) Remove(context.Context, dedup.DeferredPartition, string,
	...dedup.Deferred) (bool, error) {
	return false, dedup.ErrUnavailable
}

func (s *unreachable) Delay(context.Context, dedup.DeferredPartition, time.Duration,
	...string) error {
	return dedup.ErrUnavailable
}

func (s *unreachable) DeferredOf(context.Context, string, string, ...dedup.Key) (
	[]dedup.Deferred, error) {
	return nil, dedup.ErrUnavailable
}

func (s *unreachable) FindDeferred(context.Context, string, string, dedup.Key) (
	dedup.DeferredPartition, dedup.Deferred, bool, error) {
	return dedup.DeferredPartition{}, dedup.Deferred{}, false, dedup.ErrUnavailable
}

// findsNone takes an outage for the answer that no event is deferred.
type findsNone struct{ unreachable }

func (s *findsNone) DeferredOf(context.Context, string, string, ...dedup.Key) ([]dedup.Deferred,
	error) {
	return nil, nil
}
