package publish

import (
	"sync"

	"github.com/IBM/sarama"
)

// maxProbes bounds the probes in flight, which the budget does not count.
const maxProbes = 16

// awayPartitions knows the partitions that took no record the last time, because of the brokers.
//
// A message is retried for some 15 s, and a call lasts as long as the slowest message. So one
// partition without a leader, or without enough replicas, would delay all other messages. Instead a
// single message at a time, the probe, tries whether the partition is back. No call waits for a
// probe to the end.
//
// A message without a key has no known partition and is never held back.
type awayPartitions struct {
	mu           sync.Mutex
	partitioners *partitioners
	// the partitions that are away: is a probe in flight?
	probing map[partition]bool
	probes  int
}

func newAwayPartitions(client sarama.Client) *awayPartitions {
	return &awayPartitions{
		partitioners: newPartitioners(client), probing: map[partition]bool{},
	}
}

// partitionOf returns the partition of a message, if its key decides. The caller holds the mutex.
func (a *awayPartitions) partitionOf(m *sarama.ProducerMessage) (at partition, ok bool) {
	if m.Key == nil {
		return partition{}, false
	}
	at, fixed, err := a.partitioners.choose(m)
	return at, fixed && err == nil
}

// holds reports whether a partition is away.
func (a *awayPartitions) holds(at partition) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, away := a.probing[at]
	return away
}

// note takes the result of a message.
func (a *awayPartitions) note(m *sarama.ProducerMessage, err error, probe bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if probe {
		a.probes--
	}
	answered := err == nil || isTooLarge(err) || isRefused(err) || isNoTopic(err)
	if answered && len(a.probing) == 0 {
		return
	}
	at, ok := a.partitionOf(m)
	switch {
	case !ok:
	case answered:
		delete(a.probing, at)
	default:
		a.probing[at] = a.probing[at] && !probe
	}
}

// noteSilence notes a message that had no answer when the call gave up.
func (a *awayPartitions) noteSilence(m *sarama.ProducerMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.partitionOf(m); ok {
		probing := a.probing[at] // a probe in flight stays one
		a.probing[at] = probing
	}
}

// decide reports whether a message for a partition that is away is held, and whether it goes as the
// probe. A message that is not held may be sent.
func (a *awayPartitions) decide(m *sarama.ProducerMessage) (at partition, held, probe bool) {
	at, ok := a.partitionOf(m)
	probing, away := a.probing[at]
	if !ok || !away {
		return at, false, false
	}
	if probing || a.probes >= maxProbes {
		return at, true, false
	}
	a.probing[at] = true
	a.probes++
	return at, true, true
}
