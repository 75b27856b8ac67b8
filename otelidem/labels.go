package otelidem

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxSets bounds the label sets of one kind of event (G-15), and allSets those sets together with
// the sets that replace further ones. The SDK's limit is 2,000 per metric.
const (
	maxSets = 1000
	allSets = maxSets + maxSets/2
)

// otherLabel replaces the values beyond the bound.
const otherLabel = "_OTHER"

// labelSet has attributes in the forms that instruments take, so that counting allocates no memory.
type labelSet struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
	// n counts events on the path of a delivery and is read at collection. A call of the SDK costs
	// ten times as much.
	n atomic.Int64
}

func newLabelSet(kvs []attribute.KeyValue) *labelSet {
	kept := kvs[:0]
	for _, kv := range kvs {
		// leave out unknown values
		if kv.Value.AsString() != "" || kv.Value.Type() != attribute.STRING {
			kept = append(kept, kv)
		}
	}
	o := metric.WithAttributeSet(attribute.NewSet(kept...))
	return &labelSet{
		add: []metric.AddOption{o}, record: []metric.RecordOption{o},
		observe: []metric.ObserveOption{o},
	}
}

// textAttribute returns an attribute with unchecked data. Invalid UTF-8 is replaced: an OTLP
// exporter would otherwise drop all spans of the export.
func textAttribute(key, value string) attribute.KeyValue {
	return attribute.String(key, strings.ToValidUTF8(value, "\uFFFD"))
}

// sets creates label sets, once for each K, and at most maxSets. Beyond that, other, if not nil,
// replaces the unbounded fields of a K. Reading takes no lock.
type sets[K comparable] struct {
	build func(K) []attribute.KeyValue
	other func(K) K

	last  atomic.Pointer[keptSet[K]] // most events have the same labels as the one before
	known atomic.Pointer[map[K]*keptSet[K]]
	over  atomic.Pointer[labelSet] // beyond allSets, with the same attribute as in the SDK
	mu    sync.Mutex               // held to add a set
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
		s.over.Store(newLabelSet([]attribute.KeyValue{attribute.Bool("otel.metric.overflow",
			true)}))
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

// collect reports the counts of the sets.
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
