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
// A message without a key has no known partition and is never held back. Neither is a message for a
// topic that the client does not know: to ask brokers for it would delay the results of all others.
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

// holds reports whether a partition is away.
func (a *awayPartitions) holds(at partition) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, away := a.probing[at]
	return away
}

// note takes the result of a message. probe is the partition that the message tests, or nil.
func (a *awayPartitions) note(m *sarama.ProducerMessage, err error, probe *partition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if probe != nil {
		a.probes--
	}
	answered := err == nil || isTooLarge(err) || isRefused(err) || isNoTopic(err)
	if answered && len(a.probing) == 0 {
		return
	}
	if probe != nil { // the client may not know its topic any longer
		a.settle(*probe, answered, false)
	} else if at, ok := a.partitioners.chooseKnown(m); ok {
		a.settle(at, answered, a.probing[at])
	}
}

// settle notes whether a partition is back. The caller holds the mutex.
func (a *awayPartitions) settle(at partition, back, probing bool) {
	if back {
		delete(a.probing, at)
	} else {
		a.probing[at] = probing
	}
}

// noteSilence notes a message that had no answer when the call gave up.
func (a *awayPartitions) noteSilence(m *sarama.ProducerMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.partitioners.chooseKnown(m); ok {
		probing := a.probing[at] // a probe in flight stays one
		a.probing[at] = probing
	}
}

// decide reports whether a message for a partition that is away is held, and whether it goes as the
// probe. A message that is not held may be sent.
func (a *awayPartitions) decide(m *sarama.ProducerMessage) (at partition, held, probe bool) {
	at, ok := a.partitioners.chooseKnown(m)
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
