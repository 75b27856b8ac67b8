package consumer

import (
	"context"
	"fmt"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/runner"
)

// scripted is a consumer group with sessions of a test. It leaves the group after the last one.
type scripted struct {
	sarama.ConsumerGroup
	sessions []func()
	leave    func()
}

func (s *scripted) Consume(context.Context, []string, sarama.ConsumerGroupHandler) error {
	if len(s.sessions) == 0 {
		s.leave()
		return nil
	}
	run := s.sessions[0]
	s.sessions = s.sessions[1:]
	run()
	return nil
}

// existing is a cluster that has all topics.
type existing struct{ runner.Admin }

func (existing) Topics(_ context.Context, names []string) (all []runner.TopicInfo, err error) {
	for _, name := range names {
		all = append(all, runner.TopicInfo{Name: name, Exists: true})
	}
	return all, nil
}

// TestMembership_ReasonOfASession_K15: a reason to end a session that came before a session does not
// hide the session's own reason.
func TestMembership_ReasonOfASession_K15(t *testing.T) {
	c, err := New(good(), routed(nothing))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.handler.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	group := &scripted{leave: cancel, sessions: []func(){
		func() { c.handler.g.EndSessions(fmt.Errorf("%w: t/0", runner.ErrSilent)) },
	}}
	c.handler.g.EndSessions(runner.ErrTopicBack)
	err = c.consume(ctx, group, c.life.Watching(existing{}))
	var again *runner.ComeBack
	require.ErrorAs(t, err, &again)
	require.ErrorIs(t, again.Why, runner.ErrSilent)
}
