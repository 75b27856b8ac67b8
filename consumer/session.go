package consumer

import (
	"context"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/runner"
)

// session is a runner.Session on one of sarama.
type session struct{ sarama sarama.ConsumerGroupSession }

// confirmedSession is a runner.DirectCommitter besides.
type confirmedSession struct {
	session
	direct *directCommits
}

var _ runner.DirectCommitter = confirmedSession{}

// neutralSession returns a session without direct commits if direct is nil.
func neutralSession(sess sarama.ConsumerGroupSession, direct *directCommits) runner.Session {
	if direct == nil {
		return session{sess}
	}
	return confirmedSession{session{sess}, direct}
}

// Context implements runner.Session.
func (s session) Context() context.Context { return s.sarama.Context() }

// Generation implements runner.Session.
func (s session) Generation() int32 { return s.sarama.GenerationID() }

// Mark implements runner.Session.
func (s session) Mark(p runner.TopicPartition, next int64) {
	s.sarama.MarkOffset(p.Topic, p.Partition, next, "")
}

// Commit implements runner.Session. Without a new mark no request is sent.
func (s session) Commit() { s.sarama.Commit() }

// CommitDirectly implements runner.DirectCommitter.
func (s confirmedSession) CommitDirectly(
	ctx context.Context, offsets map[runner.TopicPartition]int64,
) (refused map[runner.TopicPartition]error, err error) {
	return s.direct.send(ctx, s.sarama, offsets)
}
