package kafkagoidem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/runner"
)

const (
	// joinWait is how long leaving the group may wait for kafka-go. The client may be in a request
	// to join, with an answer after all members have given back their partitions. After joinWait
	// the connections are cut.
	joinWait = time.Second
	// leaveWait bounds how long leaving the group may take after that. Then the brokers notice by
	// the session's time-out.
	leaveWait = 3 * time.Second
	// joinPause is kafka-go's pause after a failed try to join.
	joinPause = time.Second
	// growthEvery is the default of Runner.growthEvery.
	growthEvery = 30 * time.Second
	// topicsEvery is how often the topics of the membership are compared with the subscription.
	topicsEvery = time.Second
)

// member is one membership in the group, from joining to leaving. It has a session for each
// generation.
type member struct {
	r      *Runner
	topics []string
	known  map[string][]int32 // the partitions of the topics, from before the join
	links  *links
	group  *kafka.ConsumerGroup
	ctx    context.Context         // ends when the member leaves, with the reason as cause
	leave  context.CancelCauseFunc // the first cause counts
	id     string                  // of the last generation
}

// join prepares a membership. kafka-go joins in the background.
func (r *Runner) join(ctx context.Context, topics []string) (*member, error) {
	known, err := r.offsets.Partitions(ctx, topics)
	if err != nil {
		if end := r.life.Retry.Fatal(err); end != nil {
			return nil, end
		}
		r.life.Retry.Begin(err)
		return nil, &runner.ComeBack{Why: err}
	}
	m := &member{r: r, topics: topics, known: known, links: newLinks(r.cfg)}
	m.ctx, m.leave = context.WithCancelCause(ctx)
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: r.cfg.Group, Brokers: r.cfg.client.Brokers, Topics: topics, Dialer: m.links.dialer(r.cfg),
		GroupBalancers:    []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		HeartbeatInterval: r.cfg.client.Heartbeat, SessionTimeout: r.cfg.client.SessionTimeout,
		RebalanceTimeout: rebalanceTimeout, JoinGroupBackoff: joinPause,
		StartOffset: kafka.FirstOffset, // unused: places decides
	})
	if err != nil {
		m.leave(err)
		return nil, fmt.Errorf("kafka-go: %w", err)
	}
	m.group = group
	return m, nil
}

// run is a member until ctx ends or there is a reason to leave, and returns that reason.
func (m *member) run() error {
	var owned sync.WaitGroup
	owned.Go(m.watchGrowth)
	owned.Go(m.watchTopics)
	watched := m.r.life.Watch(m.ctx, m.leave)
	m.generations()
	m.stop()
	owned.Wait()
	watched()
	return context.Cause(m.ctx)
}

// generations serves one generation after the other until the member leaves.
func (m *member) generations() {
	var back runner.Backoff
	for {
		gen, err := m.group.Next(m.ctx)
		switch {
		case m.ctx.Err() != nil:
			if gen != nil {
				m.id = gen.MemberID
			}
			return
		case err == nil:
			began := time.Now()
			m.id = gen.MemberID
			m.serve(gen)
			if time.Since(began) > runner.ShortSession {
				back = runner.Backoff{}
			}
		case isAny(err, kafka.RebalanceInProgress): // the other members wait
		default:
			if err := m.r.life.Retry.Wait(m.ctx, &back, err); err != nil {
				m.leave(err)
				return
			}
		}
	}
}

// serve consumes in one generation. It returns after all handlers have ended and committed;
// kafka-go joins the next generation only then.
func (m *member) serve(gen *kafka.Generation) {
	s := newSession(m, gen)
	ended, finished := make(chan struct{}), make(chan struct{})
	gen.Start(func(ctx context.Context) {
		select {
		case <-ctx.Done():
			close(ended)
		case <-finished:
		}
		<-finished
	})
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(ended, finished) })
	m.consume(s)
	close(finished)
	watching.Wait()
	s.end(errRevoked) // frees the context
}

func (m *member) consume(s *session) {
	places, err := m.r.begin(s)
	if err != nil {
		if s.ctx.Err() == nil {
			m.r.group.Fail(err)
			m.leave(err)
		}
		m.r.group.End(nil, context.Cause(s.ctx))
		return
	}
	m.r.life.Retry.Serving()
	claims := make(map[string][]int32)
	for p, at := range places {
		claims[p.Topic] = append(claims[p.Topic], p.Partition)
		s.begins(p, at)
	}
	active := m.r.group.Begin(s, claims)
	var running sync.WaitGroup
	for p, at := range places {
		running.Go(func() { m.claim(s, active, newClaim(s, p, at), len(places)) })
	}
	running.Wait()
	<-s.ctx.Done() // a member without partitions waits for the next generation
	m.r.group.End(active, context.Cause(s.ctx))
}

// claim handles one partition until it is given back.
func (m *member) claim(s *session, active *runner.ActiveSession, c *claim, assigned int) {
	fetching, stop := context.WithCancel(s.ctx)
	var fetcher sync.WaitGroup
	fetcher.Go(func() { c.fetch(fetching) })
	feed := runner.Feed[*idem.Message]{Records: c.records, Message: func(m *idem.Message) *idem.Message { return m }}
	err := runner.Consume(active, c, feed, assigned)
	stop()
	fetcher.Wait()
	if s.ctx.Err() == nil { // runner has ended it: the partition cannot continue
		m.leave(m.r.group.LeaveReason(err))
	}
}

// errGrown ends a membership because a topic has other partitions.
var errGrown = errors.New("the number of partitions has changed")

// watchGrowth leaves the group when the partitions of a topic change, so that the next leader
// assigns the new ones. The watch of kafka-go itself repeats generations while a topic is missing.
//
// The comparison is with the partitions from before the join. Those that are added while the member
// joins may be missing in its first assignment.
func (m *member) watchGrowth() {
	for runner.Pause(m.ctx, m.r.growthEvery) == nil {
		partitions, err := m.r.offsets.Partitions(m.ctx, m.topics)
		if err != nil {
			continue // the watch over topics reports what is missing
		}
		for topic, ids := range partitions {
			if len(ids) != len(m.known[topic]) {
				m.leave(&runner.ComeBack{Why: fmt.Errorf("%w: %s", errGrown, topic)})
			}
		}
	}
}

// errOtherTopics ends a membership because the subscription has changed.
var errOtherTopics = errors.New("the topics to subscribe to have changed")

// watchTopics leaves the group when the membership has other topics than the subscription. While a
// topic of one member is missing, kafka-go assigns no partition to any member (K-27).
func (m *member) watchTopics() {
	for runner.Pause(m.ctx, topicsEvery) == nil {
		if !slices.Equal(m.r.life.Topics.Now(), m.topics) {
			m.leave(&runner.ComeBack{Why: errOtherTopics})
		}
	}
}

// stop leaves the group after the last session.
func (m *member) stop() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = m.group.Close() // it has no error
	}()
	if !closedWithin(closed, joinWait) {
		m.links.cut()
		var leaving sync.WaitGroup
		leaving.Go(m.leaveDirectly) // beside kafka-go: brokers that are silent cost the wait once
		if !closedWithin(closed, leaveWait) {
			m.links.close()
			<-closed
		}
		leaving.Wait()
	}
	m.links.close()
}

func closedWithin(closed <-chan struct{}, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-closed:
		return true
	case <-timer.C:
		return false
	}
}

// leaveDirectly leaves the group on another connection. When a request to join is cut, kafka-go
// forgets the ID of the member.
func (m *member) leaveDirectly() {
	if m.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	_, err := m.r.offsets.cl.LeaveGroup(ctx, &kafka.LeaveGroupRequest{
		Addr: m.r.offsets.addr, GroupID: m.r.cfg.Group,
		Members: []kafka.LeaveGroupRequestMember{{ID: m.id}},
	})
	if err != nil {
		m.r.log.Warn("leaving the group failed: the brokers notice by the session's time-out",
			"error", m.r.cfg.Text(err))
	}
}
