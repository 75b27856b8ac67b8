package publish

import (
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	// maxProbes bounds the probes in flight, which the budget does not count.
	maxProbes = 16
	// forgetAfter is how long a partition stays away while no message tests it. Its topic may be
	// gone for good. The next message for the partition is sent as any other.
	forgetAfter = 5 * time.Minute
)

// awayPartitions has the partitions that took no record the last time, because of the brokers.
//
// A message is retried for some 15 s, and a call lasts as long as the slowest message. So one
// partition without a leader, or without enough replicas, would delay all other messages. Instead a
// single message at a time, the probe, tests whether the partition is back. A call does not wait
// for a probe to the end.
//
// A message without a key has no known partition and is never held back. A message for a topic with
// unknown partitions is not held back either. The caller passes the partitions of a topic, because
// sarama's client may ask brokers for them, or hold its lock while a broker is silent. All results
// would wait for that.
type awayPartitions struct {
	mu           sync.Mutex
	partitioners *partitioners
	byTopic      map[string]map[int32]time.Time // when a partition was tried last; has no empty map
	probes       map[partition]bool             // in flight, also to partitions that are back
	alone        bool                           // a message is sent alone: no probe begins
	swept        time.Time
}

func newAwayPartitions(client sarama.Client) *awayPartitions {
	return &awayPartitions{
		partitioners: newPartitioners(client.Config()),
		byTopic:      map[string]map[int32]time.Time{}, probes: map[partition]bool{},
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
		delete(a.probes, *probe)
	}
	answered := err == nil || isTooLarge(err) || isRefused(err) || isNoTopic(err)
	if answered && len(a.byTopic) == 0 {
		return
	}
	if probe != nil { // the partitions of its topic may be others by now
		a.settle(*probe, answered)
	} else if at, ok := a.partitioners.fixed(m, all); ok {
		a.settle(at, answered)
	}
}

// noteSilence notes a message that had no answer when the call gave up.
func (a *awayPartitions) noteSilence(m *sarama.ProducerMessage, all []int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.partitioners.fixed(m, all); ok {
		a.settle(at, false)
	}
}

// settle notes whether a partition is back. The caller holds the mutex.
func (a *awayPartitions) settle(at partition, back bool) {
	a.forget()
	if back {
		a.remove(at)
		return
	}
	if a.byTopic[at.topic] == nil {
		a.byTopic[at.topic] = map[int32]time.Time{}
	}
	a.byTopic[at.topic][at.id] = time.Now()
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
		for id, tried := range some {
			if at := (partition{topic, id}); !a.probes[at] && now.Sub(tried) >= forgetAfter {
				a.remove(at)
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
	_, away := a.byTopic[at.topic][at.id]
	if !ok || !away {
		return at, false, false
	}
	if a.alone || a.probes[at] || len(a.probes) >= maxProbes {
		return at, true, false
	}
	a.settle(at, false)
	a.probes[at] = true
	return at, true, true
}

// setAlone notes whether a message is sent alone.
func (a *awayPartitions) setAlone(alone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.alone = alone
}

// mayProbe reports whether a probe in flight may share the batch of a message. all is the
// partitions of its topic.
func (a *awayPartitions) mayProbe(m *sarama.ProducerMessage, all []int32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.probes) == 0 {
		return false
	}
	if at, ok := a.partitioners.fixed(m, all); ok {
		return a.probes[at]
	}
	for at := range a.probes {
		if at.topic == m.Topic {
			return true
		}
	}
	return false
}
