package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
)

// cluster is a [Cluster] of fakes.
type cluster struct {
	*fakeAdmin
	*fakeLog
}

func (c cluster) AllEnds(
	ctx context.Context, partitions map[string][]int32,
) (map[TopicPartition]int64, error) {
	return c.Ends(ctx, partitions)
}

// fakeClient is a [Client] with memberships that end for given reasons. After the last reason a
// membership lasts until its context ends.
type fakeClient struct {
	cluster   cluster
	supported []error // of the next tries
	lasts     time.Duration
	reasons   []error
	life      *Life
	joined    []time.Time // when a membership has begun
}

func (c *fakeClient) Connect() (Cluster, error) { return c.cluster, nil }

func (c *fakeClient) Supported(context.Context) (err error) {
	if len(c.supported) > 0 {
		err, c.supported = c.supported[0], c.supported[1:]
	}
	return err
}

func (c *fakeClient) Member(ctx context.Context, _ []string) error {
	c.joined = append(c.joined, time.Now())
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	wait := c.life.Watch(ctx, leave)
	defer wait()
	if len(c.reasons) > 0 && Pause(ctx, c.lasts) == nil {
		leave(c.reasons[0])
		c.reasons = c.reasons[1:]
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func newLife(t *testing.T, c *fakeClient, observers ...observe.Observer) *Life {
	cfg := good()
	cfg.Observers = observers
	cfg.Store = memstore.New(memstore.Volatile())
	g := newGroup(t, cfg, func(context.Context, *idem.Message) error { return nil })
	c.cluster = cluster{newFakeAdmin("t"), &fakeLog{}}
	c.life = NewLife(LifeConfig{
		Config: cfg, Client: "fake", Classify: classify, Heartbeat: 3 * time.Second,
	}, g)
	return c.life
}

// run runs a life for a time, and returns the error of Run.
func (c *fakeClient) run(t *testing.T, l *Life, lasts time.Duration) error {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	serve := func(ctx context.Context) error { return l.Serve(ctx, c) }
	return l.Run(ctx, nil, serve, nil)
}

// TestLife_ComesBack_K18: after leaving by itself a member joins again, after a pause that grows
// with short memberships. After a stall it stays away for three heartbeats. A topic that is back is
// no reason to wait.
func TestLife_ComesBack_K18(t *testing.T) {
	back := func(why error) error { return &ComeBack{why} }
	errTest := errors.New("test")
	for name, c := range map[string]struct {
		why      error
		lasts    time.Duration
		min, max time.Duration // of the pause before the fourth membership
	}{
		"an error":                     {back(errTest), time.Second, time.Second, 2 * time.Second},
		"an error, after a long while": {back(errTest), time.Minute, minBackoff / 2, minBackoff},
		"a topic is back":              {back(ErrTopicBack), time.Second, 0, 0},
		"a stall":                      {back(ErrStalled), time.Second, 10 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &fakeClient{reasons: []error{c.why, c.why, c.why}, lasts: c.lasts}
				l := newLife(t, client)
				require.NoError(t, client.run(t, l, time.Hour))
				require.Len(t, client.joined, 4)
				pause := client.joined[3].Sub(client.joined[2]) - c.lasts
				require.GreaterOrEqual(t, pause, c.min)
				require.LessOrEqual(t, pause, c.max)
			})
		})
	}
}

// TestLife_Unreachable_R19: a member that cannot connect to the brokers tries again within 3 s,
// however long they are away.
func TestLife_Unreachable_R19(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &ComeBack{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
		client := &fakeClient{reasons: slices.Repeat([]error{refused}, 8)}
		l := newLife(t, client)
		require.NoError(t, client.run(t, l, time.Hour))
		require.Len(t, client.joined, 9)
		require.LessOrEqual(t, client.joined[8].Sub(client.joined[7]), maxUnreachable)
	})
}

// TestLife_Ends: another reason than coming back ends Run, as does a failure of the group.
func TestLife_Ends(t *testing.T) {
	errTest := errors.New("test")
	synctest.Test(t, func(t *testing.T) {
		client := &fakeClient{reasons: []error{errTest}}
		l := newLife(t, client)
		require.NoError(t, l.Live())
		disconnected := false
		serve := func(ctx context.Context) error { return l.Serve(ctx, client) }
		require.ErrorIs(t, l.Run(t.Context(), nil, serve, func() error {
			disconnected = true
			return nil
		}), errTest)
		require.True(t, disconnected)
		require.ErrorIs(t, l.Live(), ErrNotLive)
		require.ErrorIs(t, client.run(t, l, time.Hour), ErrRunTwice)
	})
	synctest.Test(t, func(t *testing.T) {
		client := &fakeClient{reasons: []error{&ComeBack{ErrTopicBack}}}
		l := newLife(t, client)
		l.Group.Fail(errTest)
		require.ErrorIs(t, client.run(t, l, time.Hour), errTest)
		require.Len(t, client.joined, 1)
	})
}

// TestLife_Prepares: brokers that do not answer are waited for before the first membership. A
// missing topic ends Run.
func TestLife_Prepares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &fakeClient{supported: []error{errors.New("down"), errors.New("down")}}
		l, began := newLife(t, client), time.Now()
		require.NoError(t, client.run(t, l, time.Hour))
		require.Len(t, client.joined, 1)
		require.GreaterOrEqual(t, client.joined[0].Sub(began), minBackoff/2+minBackoff)
	})
	synctest.Test(t, func(t *testing.T) {
		client := new(fakeClient)
		l := newLife(t, client)
		client.cluster.fakeAdmin = newFakeAdmin()
		var missing *TopicError
		require.ErrorAs(t, client.run(t, l, time.Hour), &missing)
		require.Equal(t, []string{"t"}, missing.Topics)
		require.Empty(t, client.joined)
	})
}

// TestGroup_LeaveReason is the table of why a member leaves after an assignment has ended.
func TestGroup_LeaveReason(t *testing.T) {
	errTest, errOther := errors.New("test"), errors.New("other")
	newOne := func() *Group {
		return newGroup(t, good(), func(context.Context, *idem.Message) error { return nil })
	}
	g, again := newOne(), new(ComeBack)
	require.ErrorAs(t, g.LeaveReason(errTest), &again)
	require.ErrorIs(t, again, errTest)
	g.EndSessions(errOther)
	require.ErrorAs(t, g.LeaveReason(errTest), &again)
	require.Equal(t, errOther, again.Why, "the group has ended the session")
	require.ErrorAs(t, g.LeaveReason(nil), &again)
	require.Equal(t, errOther, again.Why, "each claim gets the same reason")
	g.Fail(fmt.Errorf("fatal: %w", errOther))
	require.ErrorIs(t, g.LeaveReason(errTest), errOther)
	require.NotErrorAs(t, g.LeaveReason(errTest), &again, "the member does not join again")
}

// TestLife_ReasonOfAMembership: a reason to leave from before a membership is none of its own.
func TestLife_ReasonOfAMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, errTest := new(fakeClient), errors.New("test")
		l := newLife(t, client)
		l.Group.EndSessions(ErrStalled)
		require.NoError(t, client.run(t, l, time.Hour))
		require.Len(t, client.joined, 1)
		require.ErrorIs(t, l.Group.LeaveReason(errTest), errTest)
		require.NotErrorIs(t, l.Group.LeaveReason(errTest), ErrStalled)
	})
}

// TestLife_DeletedTopic_K27: a topic that was deleted is found during a membership, and before the
// next one. It is read again when it is back.
func TestLife_DeletedTopic_K27(t *testing.T) {
	for name, reasons := range map[string][]error{
		"during a membership": nil, "after a membership": {&ComeBack{errors.New("test")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &fakeClient{reasons: reasons, lasts: lookEvery / 2}
				l := newLife(t, client)
				admin := client.cluster.fakeAdmin
				admin.put("t.g.retry", OpDescribe|OpRead) // the subscription is complete
				done := make(chan error)
				go func() { done <- client.run(t, l, time.Hour) }()
				time.Sleep(lookEvery / 3)
				admin.mu.Lock()
				delete(admin.topics, "t")
				admin.mu.Unlock()
				time.Sleep(lookEvery - time.Second)
				require.Equal(t, []string{"t"}, l.Topics.Missing())
				require.ErrorContains(t, l.Ready(), "topic t does not exist any longer")
				require.Len(t, client.joined, 1+len(reasons), "for the other topic")
				admin.put("t", OpDescribe|OpRead)
				require.NoError(t, <-done)
				require.Empty(t, l.Topics.Missing())
				require.Len(t, client.joined, 2+len(reasons))
			})
		})
	}
}

// TestLife_DeniedTopic_K27: the probe tells a topic that must not be read from a deleted one.
func TestLife_DeniedTopic_K27(t *testing.T) {
	for name, info := range map[string]TopicInfo{
		"no right at all": {Denied: true}, "only described": {Exists: true, Operations: OpDescribe},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := new(fakeClient)
				l := newLife(t, client)
				admin := client.cluster.fakeAdmin
				admin.put("t.g.retry", OpDescribe|OpRead)
				done := make(chan error)
				go func() { done <- client.run(t, l, time.Hour) }()
				time.Sleep(lookEvery / 3)
				admin.mu.Lock()
				admin.topics["t"] = info
				admin.mu.Unlock()
				l.Topics.Suspect() // a broker refuses to serve records
				time.Sleep(suspectPause)
				require.Equal(t, []string{"t"}, l.Topics.Missing())
				require.ErrorContains(t, l.Ready(), "topic t must not be read: grant Read")
				require.NotContains(t, l.Ready().Error(), "topic t does not exist")
				admin.put("t", OpDescribe|OpRead)
				require.NoError(t, <-done)
				require.Empty(t, l.Topics.Missing())
			})
		})
	}
}

// TestLife_MissingTopicsEnd_K27: a runner that ends takes its missing topics back. Otherwise their
// number would last as long as the process.
func TestLife_MissingTopicsEnd_K27(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := new(topicsSeen)
		client := new(fakeClient)
		l := newLife(t, client, seen)
		admin := client.cluster.fakeAdmin
		admin.put("t.g.retry", OpDescribe|OpRead)
		done := make(chan error)
		go func() { done <- client.run(t, l, time.Hour) }()
		time.Sleep(lookEvery / 3)
		admin.mu.Lock()
		delete(admin.topics, "t")
		admin.mu.Unlock()
		require.NoError(t, <-done)
		require.Equal(t, topicsSeen{
			{Group: "g", Topic: "t", Missing: true}, {Group: "g", Topic: "t"},
		}, *seen)
		require.Equal(t, []string{"t"}, l.Topics.Missing(), "the probe still names it")
	})
}
