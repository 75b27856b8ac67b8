package runner

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idem/observe"
)

const (
	// directWait is how long the end of an assignment waits for the commit of the session before it
	// commits directly. directPause is the pause between two direct commits.
	directWait  = time.Second
	directPause = 250 * time.Millisecond
)

// marks has the marked offsets of a session, and those that a broker has confirmed.
type marks struct {
	sess     Session
	direct   DirectCommitter // nil: no direct commits
	group    string
	classify Classify
	observe  func(observe.CommitEvent)
	turn     chan struct{} // has room for the one assignment that commits directly

	mu        sync.Mutex
	marked    map[TopicPartition]int64 // last mark of each partition that is not given back yet
	confirmed map[TopicPartition]int64
}

func newMarks(g *Group, sess Session) *marks {
	direct, _ := sess.(DirectCommitter)
	return &marks{
		sess: sess, direct: direct, group: g.cfg.Group, classify: g.classify,
		observe: g.health.observe, turn: make(chan struct{}, 1),
		marked: make(map[TopicPartition]int64), confirmed: make(map[TopicPartition]int64),
	}
}

// set marks an offset for the next commit. A direct commit has the mark no earlier than the session.
func (m *marks) set(p TopicPartition, next int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sess.Mark(p, next)
	m.marked[p] = next
}

// forget drops a partition that is given back: another member may commit from here on.
func (m *marks) forget(p TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.marked, p)
	delete(m.confirmed, p)
}

// assure commits directly until a broker has confirmed the offset of a partition. One assignment
// commits for all of the session.
func (m *marks) assure(ctx context.Context, p TopicPartition, next int64) error {
	for {
		select {
		case m.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := m.commitDirectly(ctx, p, next)
		<-m.turn
		if err == nil || m.classify(err).FinalCommit() {
			return err
		}
		if Pause(ctx, directPause) != nil {
			return err
		}
	}
}

// commitDirectly commits all marks that are not confirmed yet. The error is nil if the offset of p
// is confirmed then.
func (m *marks) commitDirectly(ctx context.Context, p TopicPartition, next int64) error {
	m.mu.Lock()
	open := make(map[TopicPartition]int64)
	for q, mark := range m.marked {
		if safe, ok := m.confirmed[q]; !ok || safe < mark {
			open[q] = mark
		}
	}
	safe := m.safe(p, next)
	m.mu.Unlock()
	if safe {
		return nil
	}
	began := time.Now()
	refused, err := m.direct.CommitDirectly(ctx, open)
	m.observe(observe.CommitEvent{
		Group: m.group, Partitions: len(open), Took: time.Since(began),
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
	if m.safe(p, next) {
		return nil
	}
	return refused[p]
}

// safe reports whether a broker has confirmed this offset of a partition, or a later one. The
// caller holds m.mu.
func (m *marks) safe(p TopicPartition, next int64) bool {
	confirmed, ok := m.confirmed[p]
	return ok && confirmed >= next
}

func firstError(err error, refused map[TopicPartition]error) error {
	for _, p := range sortedPartitions(refused) {
		return refused[p]
	}
	return err
}
