package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

const (
	// directWait is how long the end of an assignment waits for sarama's commit before it commits
	// directly, and directPause the pause between two direct commits.
	directWait  = time.Second
	directPause = 250 * time.Millisecond
)

// marks has the marked offsets of a session, and those that a broker has confirmed.
type marks struct {
	sess    sarama.ConsumerGroupSession
	direct  *directCommits // nil: no direct commits
	observe func(observe.CommitEvent)
	turn    chan struct{} // has room for the one assignment that commits directly

	mu        sync.Mutex
	marked    map[partition]int64 // last mark of each partition that is not given back yet
	confirmed map[partition]int64
}

func newMarks(
	sess sarama.ConsumerGroupSession, direct *directCommits, observe func(observe.CommitEvent),
) *marks {
	return &marks{
		sess: sess, direct: direct, observe: observe, turn: make(chan struct{}, 1),
		marked: make(map[partition]int64), confirmed: make(map[partition]int64),
	}
}

// set marks an offset for the next commit.
func (m *marks) set(p partition, next int64) {
	m.mu.Lock()
	m.marked[p] = next
	m.mu.Unlock()
	m.sess.MarkOffset(p.topic, p.id, next, "")
}

// forget drops a partition that is given back: another member may commit from here on.
func (m *marks) forget(p partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.marked, p)
}

// assure commits directly until a broker has confirmed the offset of a partition. One assignment
// commits for all of the session.
func (m *marks) assure(ctx context.Context, p partition, next int64) error {
	for {
		select {
		case m.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := m.commitDirectly(ctx, p, next)
		<-m.turn
		if err == nil || classOf(err).FinalCommit() {
			return err
		}
		if runner.Pause(ctx, directPause) != nil {
			return err
		}
	}
}

// commitDirectly commits all marks that are not confirmed yet. The error is nil if the offset of p
// is confirmed then.
func (m *marks) commitDirectly(ctx context.Context, p partition, next int64) error {
	m.mu.Lock()
	open := make(map[partition]int64)
	for q, mark := range m.marked {
		if safe, ok := m.confirmed[q]; !ok || safe < mark {
			open[q] = mark
		}
	}
	safe := m.confirmed[p] >= next
	m.mu.Unlock()
	if safe {
		return nil
	}
	began := time.Now()
	refused, err := m.direct.send(ctx, m.sess, open)
	m.observe(observe.CommitEvent{
		Group: m.direct.group, Partitions: len(open), Took: time.Since(began),
		Err: firstError(err, refused),
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if refused == nil {
		return err
	}
	for q, mark := range open {
		if refused[q] == nil {
			m.confirmed[q] = mark
		}
	}
	if m.confirmed[p] >= next {
		return nil
	}
	return refused[p]
}

func firstError(err error, refused map[partition]error) error {
	for _, p := range sortedPartitions(refused) {
		return refused[p]
	}
	return err
}
