package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/runner"
)

// client is the part of [kafka.Consumer] that the loop calls, from one goroutine.
type client interface {
	SubscribeTopics(topics []string, cb kafka.RebalanceCb) error
	Poll(timeoutMs int) kafka.Event
	CommitOffsets(offsets []kafka.TopicPartition) ([]kafka.TopicPartition, error)
	Pause(partitions []kafka.TopicPartition) error
	Resume(partitions []kafka.TopicPartition) error
	AssignmentLost() bool
	Close() error
}

const (
	pollWait    = 100 * time.Millisecond
	commitEvery = time.Second
	// endWait bounds the wait for running handlers: more than the grace of the processor.
	endWait = 15 * time.Second
)

type place struct {
	topic     string
	partition int32
}

func (p place) at(offset int64) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: &p.topic, Partition: p.partition, Offset: kafka.Offset(offset)}
}

// assignment is a partition of this member.
type assignment struct {
	*lane.Partition
	held      []*idem.Message // polled while the lanes were full; the partition is paused
	atEnd     bool
	committed int64
}

// loop consumes with lanes, and commits the offsets of settled records.
type loop struct {
	client    client
	processor *idem.Processor
	upkeep    *runner.Upkeep
	lanes     lane.Config
	log       *slog.Logger

	assigned   map[place]*assignment
	lastCommit time.Time
	failed     error // why the loop must end
}

// run consumes until ctx ends, and returns nil then. Running handlers end before that, and their
// offsets are committed.
func (l *loop) run(ctx context.Context, topics []string) error {
	l.assigned = make(map[place]*assignment)
	err := l.upkeep.Start(ctx)
	if err == nil {
		err = l.client.SubscribeTopics(topics, l.rebalance)
	}
	for err == nil && ctx.Err() == nil {
		err = l.once(ctx)
	}
	l.end(slices.Collect(maps.Keys(l.assigned)), nil)
	return errors.Join(err, l.client.Close())
}

// once polls once. Poll never waits for a handler, so the group does not exclude this member.
func (l *loop) once(ctx context.Context) error {
	switch e := l.client.Poll(int(pollWait.Milliseconds())).(type) {
	case *kafka.Message:
		if e.TopicPartition.Error != nil {
			l.log.WarnContext(ctx, "partition has a problem", "error", e.TopicPartition.Error)
			break
		}
		l.push(messageOf(e))
	case kafka.PartitionEOF:
		if a := l.assigned[place{*e.Topic, e.Partition}]; a != nil {
			a.atEnd = true
		}
	case kafka.Error:
		if e.IsFatal() {
			return e
		}
		l.log.WarnContext(ctx, "client has a problem", "error", e)
	}
	l.offerHeld()
	if now := time.Now(); now.Sub(l.lastCommit) >= commitEvery {
		l.lastCommit = now
		l.commit(slices.Collect(maps.Keys(l.assigned)))
		l.upkeep.Idle(ctx, l.idle)
	}
	for at, a := range l.assigned {
		select {
		case <-a.Done():
			return fmt.Errorf("%s/%d: %w", at.topic, at.partition, a.Err())
		default:
		}
	}
	return l.failed
}

// push hands a message to the lanes of its partition. If they are full, the partition pauses.
func (l *loop) push(m *idem.Message) {
	at := place{m.Topic, m.Partition}
	a := l.assigned[at]
	if a == nil {
		return // of a partition that has gone: the next owner gets it
	}
	a.atEnd = false
	if len(a.held) > 0 || !a.Offer(m) {
		a.held = append(a.held, m)
	}
	if len(a.held) != 1 {
		return
	}
	if err := l.client.Pause([]kafka.TopicPartition{at.at(0)}); err != nil {
		l.failed = fmt.Errorf("pause: %w", err) // held messages would have no bound
	}
}

// offerHeld offers the held messages again, and resumes their partitions.
func (l *loop) offerHeld() {
	for at, a := range l.assigned {
		held := len(a.held)
		for len(a.held) > 0 && a.Offer(a.held[0]) {
			a.held = a.held[1:]
		}
		if held == 0 || len(a.held) > 0 {
			continue
		}
		if err := l.client.Resume([]kafka.TopicPartition{at.at(0)}); err != nil {
			l.failed = fmt.Errorf("resume: %w", err)
		}
	}
}

// rebalance runs within Poll and Close. The client itself takes or gives back the partitions
// afterwards.
func (l *loop) rebalance(_ *kafka.Consumer, e kafka.Event) error {
	switch e := e.(type) {
	case kafka.AssignedPartitions:
		// librdkafka keeps the pause of a partition that this member had before.
		if err := l.client.Resume(e.Partitions); err != nil {
			l.failed = fmt.Errorf("resume: %w", err)
		}
		for _, p := range e.Partitions {
			l.processor.Assigned(*p.Topic, p.Partition)
			l.assigned[place{*p.Topic, p.Partition}] = &assignment{
				Partition: lane.New(l.processor, *p.Topic, p.Partition, l.lanes), committed: -1,
			}
		}
	case kafka.RevokedPartitions:
		var places []place
		for _, p := range e.Partitions {
			places = append(places, place{*p.Topic, p.Partition})
		}
		var cause error
		if l.client.AssignmentLost() {
			cause = idem.ErrPartitionLost // another member may have them already
		}
		l.end(places, cause)
	}
	return nil
}

// end waits for the running handlers of partitions, and commits unless the partitions are lost.
func (l *loop) end(places []place, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), endWait)
	defer cancel()
	var all sync.WaitGroup
	for _, at := range places {
		if a := l.assigned[at]; a != nil {
			all.Go(func() {
				if err := a.Close(ctx, cause); err != nil {
					l.log.WarnContext(ctx, "handler was abandoned", "topic", at.topic, "partition",
						at.partition, "error", err)
				}
			})
		}
	}
	all.Wait()
	if cause == nil {
		l.commit(places)
	}
	for _, at := range places {
		delete(l.assigned, at)
	}
}

// commit commits the watermarks. After an error the next call tries again.
func (l *loop) commit(places []place) {
	var offsets []kafka.TopicPartition
	for _, at := range places {
		a := l.assigned[at]
		if a == nil {
			continue
		}
		if next, ok := a.Watermark(); ok && next != a.committed {
			offsets = append(offsets, at.at(next))
		}
	}
	if len(offsets) == 0 {
		return
	}
	answers, err := l.client.CommitOffsets(offsets)
	if err != nil {
		l.log.Warn("offsets are not committed", "error", err)
		return
	}
	for _, o := range answers {
		if o.Error != nil {
			l.log.Warn("offset is not committed", "topic", *o.Topic, "partition", o.Partition, "error", o.Error)
		} else if a := l.assigned[place{*o.Topic, o.Partition}]; a != nil {
			a.committed = int64(o.Offset)
		}
	}
}

// idle returns the partitions that are read to the end.
func (l *loop) idle() (idle []dedup.Progress) {
	for at, a := range l.assigned {
		if a.atEnd && a.Pending() == 0 {
			idle = append(idle, dedup.Progress{
				Topic: at.topic, Partition: at.partition, Next: max(a.committed, 0),
			})
		}
	}
	return idle
}

func messageOf(m *kafka.Message) *idem.Message {
	out := &idem.Message{
		Topic: *m.TopicPartition.Topic, Partition: m.TopicPartition.Partition,
		Offset: int64(m.TopicPartition.Offset), Key: m.Key, Value: m.Value, Time: m.Timestamp,
		Received: time.Now(),
	}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, idem.Header{Key: h.Key, Value: h.Value})
	}
	return out
}
