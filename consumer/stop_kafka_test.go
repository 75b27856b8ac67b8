package consumer

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
)

// puppet is a member of a group that neither sends heartbeats nor joins again by itself. So the
// others wait for it until its time is over, in a minute.
type puppet struct {
	t          *testing.T
	client     *kgo.Client
	group      string
	topic      string
	id         string
	generation int32
	members    []string // of the group, if it leads
}

func newPuppet(t *testing.T, brokers []string, group, topic string) *puppet {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ClientID("puppet"))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	p := &puppet{t: t, client: client, group: group, topic: topic}
	t.Cleanup(p.leave)
	return p
}

func (p *puppet) join(ctx context.Context) error {
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Version, metadata.Topics = 1, []string{p.topic}
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "cooperative-sticky", metadata.AppendTo(nil)
	for {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Group, r.MemberID, r.ProtocolType, r.Protocols = p.group, p.id, "consumer", append(r.Protocols, protocol)
		r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 60_000, 60_000
		answer, err := r.RequestWith(ctx, p.client)
		if err != nil {
			return err
		}
		p.id, p.generation, p.members = answer.MemberID, answer.Generation, nil
		for _, m := range answer.Members {
			p.members = append(p.members, m.MemberID)
		}
		if answer.ErrorCode != kerr.MemberIDRequired.Code {
			return kerr.ErrorForCode(answer.ErrorCode)
		}
	}
}

// sync gives the only partition to another member, if there is one.
func (p *puppet) sync(ctx context.Context) error {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation = p.group, p.id, p.generation
	r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("cooperative-sticky")
	for _, id := range p.members {
		plan := kmsg.NewConsumerMemberAssignment()
		if id != p.id {
			topic := kmsg.NewConsumerMemberAssignmentTopic()
			topic.Topic, topic.Partitions = p.topic, []int32{0}
			plan.Topics = append(plan.Topics, topic)
		}
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = id, plan.AppendTo(nil)
		r.GroupAssignment = append(r.GroupAssignment, a)
	}
	answer, err := r.RequestWith(ctx, p.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}

func (p *puppet) leave() {
	if p.id == "" {
		return
	}
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Group, r.MemberID = p.group, p.id
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = p.id
	r.Members = append(r.Members, m)
	_, _ = r.RequestWith(context.Background(), p.client) // it may be out already
}

// state is that of the group, with the clients that are in it.
func (p *puppet) state() (state string, clients []string) {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups = []string{p.group}
	answer, err := r.RequestWith(p.t.Context(), p.client)
	if err != nil || len(answer.Groups) != 1 {
		return "", nil
	}
	for _, m := range answer.Groups[0].Members {
		clients = append(clients, m.ClientID)
	}
	return answer.Groups[0].State, clients
}

func (p *puppet) awaitState(want string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		state, _ := p.state()
		return state == want
	}, soon, poll)
}

// joinsCounted counts the JoinGroup requests that sarama is about to send.
type joinsCounted struct {
	stickyByKind
	joins *atomic.Int64
}

func (s joinsCounted) SubscriptionUserData(topics []string) ([]byte, error) {
	s.joins.Add(1)
	return s.stickyByKind.SubscriptionUserData(topics)
}

func countJoins(group string, joins *atomic.Int64) func(*sarama.Config) {
	return func(sc *sarama.Config) {
		quick(sc)
		sc.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{joinsCounted{newSticky(group).(stickyByKind), joins}}
	}
}

// TestKafka_StopWhileJoining_K03: a stop while the group waits for another member is at once, and
// the group does not go on waiting for the one that has stopped.
func TestKafka_StopWhileJoining_K03(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 1)
	cfg.Cooperative, cfg.Grace = true, 20*time.Second
	other := newPuppet(t, brokers, cfg.Group, topic)
	require.NoError(t, other.join(t.Context()))
	require.NoError(t, other.sync(t.Context()))
	m := start(t, cfg, routed(nothing))
	other.awaitState("PreparingRebalance")
	began := time.Now()
	require.NoError(t, m.end())
	require.Less(t, time.Since(began), 5*time.Second)
	require.Eventually(t, func() bool {
		_, clients := other.state()
		return slices.Equal(clients, []string{"puppet"})
	}, soon, poll, "it is still a member")
}

// TestKafka_StopInRejoin_K03: a member is stopped in a cooperative rejoin that another member holds
// up. The events that it handled since the rejoin began are committed. While no broker takes
// offsets, the error of Run reports it.
func TestKafka_StopInRejoin_K03(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leader bool // the other member leads, and does not give out the partitions
		late   bool // but does it after the stop
		want   error
	}{
		"join": {}, "sync": {leader: true, want: ErrNotCommitted}, "sync, late": {leader: true, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokers, topic, cfg := onKafka(t, 1)
			var joins atomic.Int64
			gate := make(chan struct{})
			var got tally
			cfg.Cooperative, cfg.Grace, cfg.CommitInterval, cfg.Sarama = true, 20*time.Second, 50*time.Millisecond, countJoins(cfg.Group, &joins)
			cfg.CreateDeadLetterTopics, cfg.Producer = nil, new(refusing)
			other := newPuppet(t, brokers, cfg.Group, topic)
			if c.leader {
				require.NoError(t, other.join(t.Context()))
				require.NoError(t, other.sync(t.Context()))
			}
			m := start(t, cfg, routed(func(ctx context.Context, m *idem.Message) error {
				if got.events() == 2 {
					<-gate
				}
				got.add(eventID(m))
				return nil
			}))
			if c.leader {
				other.awaitState("PreparingRebalance")
				require.NoError(t, other.join(t.Context()))
				require.NoError(t, other.sync(t.Context()))
			}
			require.Eventually(t, func() bool { return claimsOf(m) == 1 }, soon, poll)
			produceEvents(t, brokers, topic, 0, 40)
			require.Eventually(t, func() bool { return committed(t, brokers, cfg.Group, topic, 0)[0] == 2 }, soon, poll)

			had := joins.Load()
			if c.leader { // its next join is a new generation, which it leaves without a plan
				require.NoError(t, other.join(t.Context()))
				other.awaitState("CompletingRebalance")
			} else { // it joins, and does not join again when a third one comes
				require.NoError(t, other.join(t.Context()))
				other.awaitState("Stable")
				had = joins.Load()
				third := newPuppet(t, brokers, cfg.Group, topic)
				ctx, cancel := context.WithCancel(t.Context())
				joined := make(chan struct{})
				go func() {
					defer close(joined)
					_ = third.join(ctx) // it is not to succeed
				}()
				defer func() { cancel(); <-joined }()
			}
			require.Eventually(t, func() bool { return joins.Load() > had }, soon, poll)
			close(gate)
			require.Eventually(t, func() bool { return got.events() == 40 }, soon, poll)
			if c.late {
				time.AfterFunc(2*time.Second, func() { _ = other.sync(context.Background()) })
			}
			began := time.Now()
			err := m.end()
			require.Less(t, time.Since(began), 10*time.Second)
			require.Equal(t, 40, got.total())
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.EqualValues(t, 40, committed(t, brokers, cfg.Group, topic, 0)[0])
		})
	}
}

// refusing is a producer that is never needed.
type refusing struct{}

func (*refusing) Produce(context.Context, ...*idem.Message) error { return errTest }
