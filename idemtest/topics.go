package idemtest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// place names a partition.
type place struct {
	topic     string
	partition int32
}

// partition is a log of records, and how far a consumer has read it.
type partition struct {
	log       []*idem.Message
	settled   int // records from the front
	committed int // of those, records with a committed offset
}

// topics are the logs of a Kafka in memory. Safe for concurrent use.
type topics struct {
	mu    sync.Mutex
	parts map[place]*partition
}

// append gives m the next offset of its partition.
func (k *topics) append(m *idem.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := place{m.Topic, m.Partition}
	if k.parts == nil {
		k.parts = make(map[place]*partition)
	}
	p := k.parts[at]
	if p == nil {
		p = &partition{}
		k.parts[at] = p
	}
	m.Offset = int64(len(p.log))
	p.log = append(p.log, m)
}

// Produce implements [idem.Producer].
func (k *topics) Produce(_ context.Context, msgs ...*idem.Message) error {
	for _, m := range msgs {
		c := copyOf(m)
		if c.Partition = 0; c.Time.IsZero() {
			c.Time = time.Now()
		}
		k.append(c)
	}
	return nil
}

// read returns the partitions of the topics that choose names, in order.
func (k *topics) read(choose func(topic string) bool) []place {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := slices.SortedFunc(maps.Keys(k.parts), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	return slices.DeleteFunc(all, func(p place) bool { return !choose(p.topic) })
}

// open returns the records of a partition that are not settled.
func (k *topics) open(at place) []*idem.Message {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.parts[at]
	return slices.Clone(p.log[p.settled:])
}

// settle marks the records up to m as settled.
func (k *topics) settle(m *idem.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.parts[place{m.Topic, m.Partition}]
	p.settled = max(p.settled, int(m.Offset)+1)
}

// commit commits the offsets of all settled records.
func (k *topics) commit() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.parts {
		p.committed = p.settled
	}
}

// rewind forgets which records behind the committed offsets are settled.
func (k *topics) rewind() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.parts {
		p.settled = p.committed
	}
}

// all returns the records of the topics that choose names.
func (k *topics) all(choose func(topic string) bool) (found []*idem.Message) {
	for _, at := range k.read(choose) {
		k.mu.Lock()
		found = append(found, k.parts[at].log...)
		k.mu.Unlock()
	}
	return found
}
