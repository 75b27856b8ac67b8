package runner

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Client is the part of a runner that depends on the Kafka client, if each membership has a client
// of its own. [Life.Serve] calls its methods one after the other.
type Client interface {
	// Connect is called once, after the checks of the stores. An error ends the runner.
	Connect() (Cluster, error)
	// Supported returns an error if the brokers lack a feature that the settings need. The start
	// waits for brokers that do not answer.
	Supported(ctx context.Context) error
	// Member is a member of the group, with a subscription to topics, until ctx ends or there is a
	// reason to leave, and returns that reason. After a [*ComeBack] Member is called again.
	Member(ctx context.Context, topics []string) error
}

// ComeBack means that a member leaves the group by itself and will join again.
type ComeBack struct{ Why error }

// Error names the reason.
func (e *ComeBack) Error() string { return "leaving the group to come back: " + e.Why.Error() }

// Unwrap returns the reason.
func (e *ComeBack) Unwrap() error { return e.Why }

// ShortSession is the shortest membership after which the backoff begins anew.
const ShortSession = 30 * time.Second

// LeaveReason returns why a member leaves the group after [Consume] has ended an assignment with
// err. If the group ended the session itself, each assignment gets the same reason.
func (g *Group) LeaveReason(err error) error {
	if end := g.Err(); end != nil {
		return end
	}
	if ending := g.ownEnding(); ending != nil {
		return &ComeBack{ending}
	}
	return &ComeBack{fmt.Errorf("partition cannot continue: %w", err)}
}

// Serve checks the stores and the topics, and is a member of the group until ctx ends or an error
// is fatal. After leaving the group by itself the member joins again. Pass Serve to [Life.Run].
func (l *Life) Serve(ctx context.Context, c Client) error {
	if err := l.Stores.Check(ctx); err != nil {
		return err
	}
	cluster, err := c.Connect()
	if err != nil {
		return err
	}
	l.cluster = cluster
	l.Group.Hooks.Oldest, l.Group.Hooks.Committed = l.oldest, l.committed
	l.Group.Hooks.Ends = positionEnds{cluster}
	if err := l.prepare(ctx, c); err != nil {
		return err
	}
	var back Backoff
	for troubled := false; ; troubled = true {
		began := time.Now()
		err := l.once(ctx, c, troubled)
		if end := l.endOf(ctx, err); end != nil {
			return end
		}
		if errors.Is(err, ErrTopicBack) {
			continue
		}
		if time.Since(began) > ShortSession {
			back = Backoff{}
		}
		wait := func(ctx context.Context) error { return back.waitAfter(ctx, err) }
		if errors.Is(err, ErrStalled) {
			wait = func(ctx context.Context) error { return Pause(ctx, l.AwayFor()) }
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
}

// endOf returns why the runner ends after a membership, or nil if the member joins again.
func (l *Life) endOf(ctx context.Context, err error) error {
	var again *ComeBack
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case l.Group.Err() != nil:
		return l.Group.Err()
	case !errors.As(err, &again):
		return err
	}
	return nil
}

// once is one membership. It is troubled if the membership before has ended by itself.
func (l *Life) once(ctx context.Context, c Client, troubled bool) error {
	topics, err := l.Watching(l.cluster).Subscription(ctx, troubled)
	if err != nil {
		l.Retry.Begin(err)
		return &ComeBack{err}
	}
	_ = l.Group.TakeEnding() // of the membership before
	return c.Member(ctx, topics)
}

// prepare makes sure, before the group is joined, that the topics may be used, and that the stores
// know this consumer.
func (l *Life) prepare(ctx context.Context, c Client) error {
	var back Backoff
	for {
		err := l.tryPrepare(ctx, c)
		if err == nil {
			l.Retry.Over()
			return l.Register(ctx, l.cluster)
		}
		var missing *TopicError
		if errors.As(err, &missing) {
			return err
		}
		if err := l.Retry.Wait(ctx, &back, err); err != nil {
			return err
		}
	}
}

func (l *Life) tryPrepare(ctx context.Context, c Client) error {
	if err := c.Supported(ctx); err != nil {
		return err
	}
	if err := l.Setup(l.cluster).Ensure(ctx); err != nil {
		return err
	}
	_, err := l.Watching(l.cluster).Look(ctx)
	return err
}

// oldest returns the first offset in the log.
func (l *Life) oldest(topic string, id int32) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), EndsWait)
	defer cancel()
	all, err := l.cluster.Oldest(ctx, map[string][]int32{topic: {id}})
	return all[TopicPartition{topic, id}], err
}

// committed returns the committed offsets of the group.
func (l *Life) committed(
	ctx context.Context, partitions map[string][]int32,
) (map[TopicPartition]int64, error) {
	return l.cluster.Committed(ctx, l.cfg.Group, partitions)
}
