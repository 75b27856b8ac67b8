package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// recording is the harness of a store with both abilities.
func recording(of func(*memstore.Store) dedup.Store) Harness {
	h := inMemory(of)
	h.Missing = []Ability{Check, Outage}
	return h
}

// Each case refutes the store that breaks a promise of dedup.ProgressRecorder or dedup.Registrar.
func TestBrokenRecordsFail(t *testing.T) {
	for _, c := range []struct {
		name  string
		store func(*memstore.Store) dedup.Store
		cases []string
	}{
		{"no ability", func(s *memstore.Store) dedup.Store { return s }, []string{
			"progress: the offsets on record, by topic and partition",
			"register: the same again passes (rule 7)",
		}},
		{"keeps the greater Next", func(s *memstore.Store) dedup.Store {
			return &keepsGreater{newRecords(s)}
		}, []string{"progress: a lower Next replaces a higher one (rule 8)"}},
		{"one progress for all scopes", func(s *memstore.Store) dedup.Store {
			return &mixesScopes{newRecords(s)}
		}, []string{"progress: scopes, topics and partitions are apart (rule 8)"}},
		{"no order", func(s *memstore.Store) dedup.Store { return &unordered{newRecords(s)} },
			[]string{"progress: the offsets on record, by topic and partition"}},
		{"registers everything", func(s *memstore.Store) dedup.Store {
			return &registersAll{newRecords(s)}
		}, []string{
			"register: a changed descriptor is refused (rule 7)",
			"register: an accepted descriptor is the one on record (rule 7)",
			"register: topics of other scopes refuse a group without offsets (rule 14)",
			"register: of different ones at once, one is accepted (rule 7)",
		}},
		{"writes although refused", func(s *memstore.Store) dedup.Store {
			return &writesRefused{newRecords(s)}
		}, []string{
			"register: a refused registration writes nothing (rule 7)",
			"register: a changed descriptor is refused (rule 7)",
			"register: topics of other scopes refuse a group without offsets (rule 14)",
		}},
		{"writes the unchanged part although refused", func(s *memstore.Store) dedup.Store {
			return &writesRest{newRecords(s)}
		}, []string{"register: a refused registration writes nothing (rule 7)"}},
		{"compares before it locks", func(s *memstore.Store) dedup.Store {
			return &comparesEarly{newRecords(s)}
		}, []string{"register: of different ones at once, one is accepted (rule 7)"}},
		{"refuses new types", func(s *memstore.Store) dedup.Store {
			return &refusesNew{newRecords(s)}
		}, []string{"register: new and missing types and topics pass (rule 7)"}},
		{"one record for all scopes", func(s *memstore.Store) dedup.Store {
			return &oneScope{newRecords(s)}
		}, []string{"register: scopes have descriptors of their own (rule 7)"}},
	} {
		for _, name := range c.cases {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				refuted(t, name, recording(c.store), recording(newSoundRecords))
			})
		}
	}
}

// An outage must look neither like a success nor like a refusal.
func TestRecordsWithoutTheirServerFail(t *testing.T) {
	down := func(answer error) Harness {
		h := recording(func(s *memstore.Store) dedup.Store { return &constant{s, answer} })
		h.Down, h.Missing = h.New, []Ability{Check}
		return h
	}
	refusal := fmt.Errorf("%w (%w)", dedup.ErrIdentityChanged, dedup.ErrUnavailable)
	for name, answer := range map[string]error{"success": nil, "refusal": refusal} {
		t.Run(name, func(t *testing.T) {
			refuted(t, "register: a server that is down is unavailable (R-19)", down(answer),
				down(dedup.ErrUnavailable))
		})
	}
	refuted(t, "progress: a server that is down is unavailable (R-19)", down(nil),
		down(dedup.ErrUnavailable))
}

// A store that forgets the types and topics that a consumer no longer names is right too.
func TestRightRecordsPass(t *testing.T) {
	h := recording(newSoundRecords)
	h.Around = synctest.Test
	for _, c := range slices.Concat(progressTests, registerTests) {
		t.Run(c.name, func(t *testing.T) { runOne(t, h.ready(t), c) })
	}
}

// partitionOf names a partition of a scope.
type partitionOf struct {
	scope, topic string
	partition    int32
}

// records keeps progress and registrations in memory.
type records struct {
	*memstore.Store
	mu     sync.Mutex
	next   map[partitionOf]int64
	types  map[string]map[string]string // descriptors by scope
	topics map[string][]string          // scopes by topic
}

func newRecords(s *memstore.Store) *records {
	return &records{Store: s, next: make(map[partitionOf]int64),
		types: make(map[string]map[string]string), topics: make(map[string][]string)}
}

func newSoundRecords(s *memstore.Store) dedup.Store { return newRecords(s) }

func (s *records) RecordProgress(_ context.Context, scope string, all []dedup.Progress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range all {
		s.next[partitionOf{scope, p.Topic, p.Partition}] = p.Next
	}
	return nil
}

func (s *records) Progress(_ context.Context, scope string, topics ...string) (
	all []dedup.Progress, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, next := range s.next {
		if of.scope == scope && slices.Contains(topics, of.topic) {
			all = append(all, dedup.Progress{Topic: of.topic, Partition: of.partition, Next: next})
		}
	}
	slices.SortFunc(all, func(a, b dedup.Progress) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all, nil
}

func (s *records) Register(_ context.Context, r dedup.Registration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.compare(r); err != nil {
		return err
	}
	s.write(r)
	return nil
}

func (s *records) compare(r dedup.Registration) error {
	for typ, text := range r.Descriptors {
		if old, known := s.types[r.Scope][typ]; known && old != text && !r.AcceptNewIdentity {
			return dedup.ErrIdentityChanged
		}
	}
	for _, topic := range r.Topics {
		scopes := s.topics[topic]
		if r.NoOffsets && !r.NewScope && len(scopes) > 0 && !slices.Contains(scopes, r.Scope) {
			return dedup.ErrOtherScope
		}
	}
	return nil
}

// write forgets what r does not name.
func (s *records) write(r dedup.Registration) {
	s.types[r.Scope] = maps.Clone(r.Descriptors)
	for topic, scopes := range s.topics {
		s.topics[topic] = slices.DeleteFunc(scopes, func(of string) bool { return of == r.Scope })
	}
	for _, topic := range r.Topics {
		s.topics[topic] = append(s.topics[topic], r.Scope)
	}
}

type keepsGreater struct{ *records }

func (s *keepsGreater) RecordProgress(ctx context.Context, scope string,
	all []dedup.Progress) error {
	for _, p := range all {
		known, _ := s.Progress(ctx, scope, p.Topic)
		for _, old := range known {
			if old.Partition == p.Partition {
				p.Next = max(p.Next, old.Next)
			}
		}
		_ = s.records.RecordProgress(ctx, scope, []dedup.Progress{p})
	}
	return nil
}

type mixesScopes struct{ *records }

func (s *mixesScopes) RecordProgress(ctx context.Context, _ string, all []dedup.Progress) error {
	return s.records.RecordProgress(ctx, "", all)
}

func (s *mixesScopes) Progress(ctx context.Context, _ string, topics ...string) (
	[]dedup.Progress, error) {
	return s.records.Progress(ctx, "", topics...)
}

type unordered struct{ *records }

func (s *unordered) Progress(ctx context.Context, scope string, topics ...string) (
	all []dedup.Progress, err error) {
	for _, topic := range topics {
		of, err := s.records.Progress(ctx, scope, topic)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

type registersAll struct{ *records }

func (*registersAll) Register(context.Context, dedup.Registration) error { return nil }

type writesRefused struct{ *records }

func (s *writesRefused) Register(ctx context.Context, r dedup.Registration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.compare(r)
	s.write(r)
	return err
}

// writesRest adds the new types and the topics of a refused registration.
type writesRest struct{ *records }

func (s *writesRest) Register(ctx context.Context, r dedup.Registration) error {
	err := s.records.Register(ctx, r)
	if errors.Is(err, dedup.ErrIdentityChanged) {
		rest := maps.Clone(r.Descriptors)
		maps.Copy(rest, s.types[r.Scope])
		r.Descriptors, r.AcceptNewIdentity = rest, true
		s.write(r)
	}
	return err
}

// comparesEarly compares in one step and writes in another.
type comparesEarly struct{ *records }

func (s *comparesEarly) Register(_ context.Context, r dedup.Registration) error {
	s.mu.Lock()
	err := s.compare(r)
	s.mu.Unlock()
	time.Sleep(time.Microsecond) // in a bubble: all others take their turn
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(r)
	return nil
}

type refusesNew struct{ *records }

func (s *refusesNew) Register(ctx context.Context, r dedup.Registration) error {
	known := s.types[r.Scope]
	for typ := range r.Descriptors {
		if _, there := known[typ]; known != nil && !there {
			return dedup.ErrIdentityChanged
		}
	}
	return s.records.Register(ctx, r)
}

type oneScope struct{ *records }

func (s *oneScope) Register(ctx context.Context, r dedup.Registration) error {
	r.Scope = ""
	return s.records.Register(ctx, r)
}

// constant has one answer to all calls.
type constant struct {
	*memstore.Store
	err error
}

func (s *constant) RecordProgress(context.Context, string, []dedup.Progress) error { return s.err }

func (s *constant) Progress(context.Context, string, ...string) ([]dedup.Progress, error) {
	return nil, s.err
}

func (s *constant) Register(context.Context, dedup.Registration) error { return s.err }
