package consumer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/runner"
)

// scripted is a consumer group with sessions of a test. It leaves the group after the last one.
type scripted struct {
	sarama.ConsumerGroup
	sessions []func()
	leave    func()
	topics   [][]string // of each Consume
}

func (s *scripted) Consume(_ context.Context, topics []string, _ sarama.ConsumerGroupHandler) error {
	s.topics = append(s.topics, topics)
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

// lacking is a cluster without some topics.
type lacking struct {
	runner.Admin
	mu      sync.Mutex
	missing string
}

func (l *lacking) Topics(_ context.Context, names []string) (all []runner.TopicInfo, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		all = append(all, runner.TopicInfo{Name: name, Exists: name != l.missing})
	}
	return all, nil
}

func (l *lacking) create() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing = ""
}

// TestMembership_TopicWhileJoining_K27: a topic that exists again while the member joins is
// subscribed to in the next session. The session with the old topics ends at once.
func TestMembership_TopicWhileJoining_K27(t *testing.T) {
	c, err := New(good(), routed(nothing))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.handler.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := c.handler
	topic := c.cfg.Topics[0]
	retry := h.Topics(topic)[1]
	cluster := &lacking{missing: retry}
	watch := c.life.Watching(cluster)
	_, err = watch.Look(ctx)
	require.NoError(t, err)
	join := func() { // a session that begins after a look
		cluster.create()
		if renew, err := watch.Look(ctx); err == nil && renew {
			h.g.EndSessions(runner.ErrTopicBack)
		}
		session, end := context.WithCancel(ctx)
		defer end()
		sess := newFakeSession(session, map[string][]int32{topic: {0}})
		require.NoError(t, h.Setup(sess))
		run := consume(h, sess, newFakeClaim(topic, 0, 0))
		select {
		case <-run.done:
		case <-time.After(soon):
			t.Error("the session goes on without the topic")
			end()
		}
		<-run.done
		require.NoError(t, h.Cleanup(sess))
	}
	h.prepare, h.added = nil, nil
	group := &scripted{leave: cancel, sessions: []func(){join}}
	require.ErrorIs(t, c.consume(ctx, group, watch), context.Canceled)
	require.Equal(t, [][]string{{topic}, {topic, retry}}, group.topics)
}
