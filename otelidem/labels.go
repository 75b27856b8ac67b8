package otelidem

import (
	"maps"
	"strings"
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
	// n is for what comes one by one on the path of the event: a call of the SDK costs ten times as much as this. It is told
	// when metrics are collected.
	n atomic.Int64
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

// textAttribute is an attribute whose value is data that nobody has checked. What is no UTF-8 is replaced: an exporter of OTLP would not
// send any of the spans that it was to go with.
func textAttribute(key, value string) attribute.KeyValue {
	return attribute.String(key, strings.ToValidUTF8(value, "\uFFFD"))
}

// sets makes label sets, once for each K, and at most maxSets. Beyond them other, if not nil, replaces what of a K is not
// bounded. Reading takes no lock.
type sets[K comparable] struct {
	build func(K) []attribute.KeyValue
	other func(K) K

	last  atomic.Pointer[keptSet[K]] // most events are like the one before
	known atomic.Pointer[map[K]*keptSet[K]]
	over  atomic.Pointer[labelSet] // for what does not even fit under other; it is what the SDK does, too
	mu    sync.Mutex               // for who adds
}

type keptSet[K comparable] struct {
	k   K
	set *labelSet
}

func (s *sets[K]) get(k K) *labelSet {
	if last := s.last.Load(); last != nil && last.k == k {
		return last.set
	}
	if known := s.known.Load(); known != nil {
		if kept, ok := (*known)[k]; ok {
			s.last.Store(kept)
			return kept.set
		}
		if len(*known) >= allSets {
			return s.over.Load()
		}
	}
	return s.make(k)
}

func (s *sets[K]) make(k K) *labelSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[K]*keptSet[K]{}
	if p := s.known.Load(); p != nil {
		known = *p
	} else {
		s.over.Store(newLabelSet([]attribute.KeyValue{attribute.Bool("otel.metric.overflow", true)}))
	}
	if len(known) >= maxSets && s.other != nil {
		k = s.other(k)
	}
	if kept, ok := known[k]; ok {
		return kept.set
	}
	if len(known) >= allSets || len(known) >= maxSets && s.other == nil {
		return s.over.Load()
	}
	known = maps.Clone(known)
	known[k] = &keptSet[K]{k, newLabelSet(s.build(k))}
	s.known.Store(&known)
	return known[k].set
}

// collect tells what was counted in the sets themselves.
func (s *sets[K]) collect(to metric.Observer, as metric.Int64Observable) {
	known := s.known.Load()
	if known == nil {
		return
	}
	for _, kept := range *known {
		to.ObserveInt64(as, kept.set.n.Load(), kept.set.observe...)
	}
	if over := s.over.Load(); over.n.Load() != 0 {
		to.ObserveInt64(as, over.n.Load(), over.observe...)
	}
}
