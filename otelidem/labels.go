package otelidem

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxSets bounds the label sets of one kind of event (G-15), and allSets those of them together with what takes their place beyond
// that. The SDK stops at 2,000 a metric.
const (
	maxSets = 1000
	allSets = maxSets + maxSets/2
)

// otherLabel takes the place of values beyond that.
const otherLabel = "_OTHER"

// labelSet is attributes in the forms that instruments take, so that nothing is allocated where something is counted.
type labelSet struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

func newLabelSet(kvs []attribute.KeyValue) *labelSet {
	kept := kvs[:0]
	for _, kv := range kvs {
		if kv.Value.AsString() != "" || kv.Value.Type() != attribute.STRING { // what is not known is left out
			kept = append(kept, kv)
		}
	}
	o := metric.WithAttributeSet(attribute.NewSet(kept...))
	return &labelSet{add: []metric.AddOption{o}, record: []metric.RecordOption{o}, observe: []metric.ObserveOption{o}}
}

// overflow is for what does not even fit without what is not bounded. It is what the SDK does, too.
var overflow = newLabelSet([]attribute.KeyValue{attribute.Bool("otel.metric.overflow", true)})

// sets makes label sets, once for each K, and at most maxSets. Beyond them other, if not nil, replaces what of a K is not
// bounded.
// Reading takes no lock.
type sets[K comparable] struct {
	build func(K) []attribute.KeyValue
	other func(K) K

	known atomic.Pointer[map[K]*labelSet]
	mu    sync.Mutex // for who adds
}

func (s *sets[K]) get(k K) *labelSet {
	if known := s.known.Load(); known != nil {
		if set, ok := (*known)[k]; ok {
			return set
		}
		if len(*known) >= allSets {
			return overflow
		}
	}
	return s.make(k)
}

func (s *sets[K]) make(k K) *labelSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[K]*labelSet{}
	if p := s.known.Load(); p != nil {
		known = *p
	}
	if len(known) >= maxSets {
		if s.other == nil {
			return overflow
		}
		k = s.other(k)
	}
	if set, ok := known[k]; ok {
		return set
	}
	if len(known) >= allSets {
		return overflow
	}
	known = maps.Clone(known)
	known[k] = newLabelSet(s.build(k))
	s.known.Store(&known)
	return known[k]
}
