package publish

import (
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	// maxProbes bounds the probes in flight, which the budget does not count.
	maxProbes = 16
	// forgetAfter is how long a partition stays away that no message tries. Its topic may be gone for
	// good. The next message for the partition is sent as any other.
	forgetAfter = 5 * time.Minute
)

// awayPartitions knows the partitions that took no record the last time, because of the brokers.
//
// A message is retried for some 15 s, and a call lasts as long as the slowest message. So one
// partition without a leader, or without enough replicas, would delay all other messages. Instead a
// single message at a time, the probe, tries whether the partition is back. No call waits for a
// probe to the end.
//
// A message without a key has no known partition and is never held back. Neither is a message for a
// topic whose partitions are not known. Callers bring the partitions of a topic. sarama's client may
// ask brokers for them, or hold its lock while a broker is silent: all results would wait for that.
type awayPartitions struct {
	mu           sync.Mutex
	partitioners *partitioners
	byTopic      map[string]map[int32]awayPartition // has no empty map
	probes       int
	swept        time.Time
}

// awayPartition is the state of a partition that is away.
type awayPartition struct {
	probing bool // a probe is in flight
	tried   time.Time
}

func newAwayPartitions(client sarama.Client) *awayPartitions {
	return &awayPartitions{
		partitioners: newPartitioners(client.Config()),
		byTopic:      map[string]map[int32]awayPartition{},
	}
}

// holds reports whether a partition is away.
func (a *awayPartitions) holds(at partition) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget()
	_, away := a.byTopic[at.topic][at.id]
	return away
}

// note takes the result of a message. all is the partitions of its topic. probe is the partition
// that the message tests, or nil.
func (a *awayPartitions) note(
	m *sarama.ProducerMessage, all []int32, err error, probe *partition,
) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if probe != nil {
		a.probes--
	}
	answered := err == nil || isTooLarge(err) || isRefused(err) || isNoTopic(err)
	if answered && len(a.byTopic) == 0 {
		return
	}
	if probe != nil { // the partitions of its topic may be others by now
		a.settle(*probe, answered, false)
	} else if at, ok := a.partitioners.fixed(m, all); ok {
		a.settle(at, answered, a.byTopic[at.topic][at.id].probing)
	}
}

// noteSilence notes a message that had no answer when the call gave up.
func (a *awayPartitions) noteSilence(m *sarama.ProducerMessage, all []int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.partitioners.fixed(m, all); ok {
		a.settle(at, false, a.byTopic[at.topic][at.id].probing) // a probe in flight stays one
	}
}

// settle notes whether a partition is back. The caller holds the mutex.
func (a *awayPartitions) settle(at partition, back, probing bool) {
	a.forget()
	if back {
		a.remove(at)
		return
	}
	if a.byTopic[at.topic] == nil {
		a.byTopic[at.topic] = map[int32]awayPartition{}
	}
	a.byTopic[at.topic][at.id] = awayPartition{probing, time.Now()}
}

// remove takes a partition out. The caller holds the mutex.
func (a *awayPartitions) remove(at partition) {
	delete(a.byTopic[at.topic], at.id)
	if len(a.byTopic[at.topic]) == 0 {
		delete(a.byTopic, at.topic)
	}
}

// forget removes the partitions that no message has tried for forgetAfter. It looks once a minute.
// The caller holds the mutex.
func (a *awayPartitions) forget() {
	now := time.Now()
	if len(a.byTopic) == 0 || now.Sub(a.swept) < time.Minute {
		return
	}
	a.swept = now
	for topic, some := range a.byTopic {
		for id, p := range some {
			if !p.probing && now.Sub(p.tried) >= forgetAfter {
				a.remove(partition{topic, id})
			}
		}
	}
}

// decide reports whether a message for a partition that is away is held, and whether it goes as the
// probe. all is the partitions of its topic. A message that is not held may be sent. The caller
// holds the mutex.
func (a *awayPartitions) decide(
	m *sarama.ProducerMessage, all []int32,
) (at partition, held, probe bool) {
	at, ok := a.partitioners.fixed(m, all)
	p, away := a.byTopic[at.topic][at.id]
	if !ok || !away {
		return at, false, false
	}
	if p.probing || a.probes >= maxProbes {
		return at, true, false
	}
	a.settle(at, false, true)
	a.probes++
	return at, true, true
}
