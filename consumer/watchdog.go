package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/internal/conns"
	"github.com/idem-go/idem/runner"
)

// Run returns after a stop at the latest after Config.EndWait, CommitWait, releaseWait, leaveWait
// and flushWait.
const (
	// releaseWait is how long sarama may take to end a session after all assignments have ended.
	// Running fetches end first, and in a rebalance a rejoin, which may last a minute.
	releaseWait = time.Second
	// leaveWait bounds how long leaving the group may take. Then the connections are cut, and the
	// brokers notice by the session's time-out.
	leaveWait = 3 * time.Second
	// watchPause is how often a stop checks whether the assignments have ended.
	watchPause = 25 * time.Millisecond
)

// watchdog bounds the stop of a membership.
type watchdog struct {
	cfg   Config
	log   *slog.Logger
	group *runner.Group
	links *conns.Conns
}

// run bounds the time between the end of ctx and the return of Consume, which may hang in a
// request. Without a session the connections are cut at once. With a session, the assignments end
// and commit first. After Consume has returned, connections may be opened again.
func (w *watchdog) run(ctx context.Context, consumed <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-consumed:
		return
	}
	defer w.links.Mend()
	w.log.Info("consumer stops: no new handler begins, running handlers have the grace",
		"grace", w.cfg.Grace)
	if w.group.Joined() {
		if w.await(consumed) {
			return
		}
		w.log.Info("the group rebalances or brokers do not answer, cutting the connections")
	}
	w.links.Cut()
	<-consumed
}

// await waits until the assignments have ended and sarama had releaseWait to end the session, or
// until the time for that is over. The result is true if Consume has returned.
func (w *watchdog) await(consumed <-chan struct{}) bool {
	limit := time.NewTimer(w.cfg.neutral().EndWait() + runner.CommitWait + releaseWait)
	defer limit.Stop()
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	var released <-chan time.Time // nil as long as there are assignments
	for {
		select {
		case <-consumed:
			return true
		case <-limit.C:
			return false
		case <-released:
			return false
		case <-tick.C:
			if released == nil && w.group.Released() {
				released = time.After(releaseWait)
			}
		}
	}
}

// leaveGroup gives up the membership. Unless remove is set, a static member stays in the group, so
// that a restart moves no partition.
func (w *watchdog) leaveGroup(group sarama.ConsumerGroup, client sarama.Client, remove bool) {
	cut := time.AfterFunc(leaveWait, w.links.Cut)
	defer cut.Stop()
	if remove && w.cfg.InstanceID != "" {
		if err := w.removeStatic(client); err != nil {
			w.warn(err)
		}
	}
	if err := group.Close(); err != nil && !errors.Is(err, sarama.ErrClosedClient) {
		w.warn(err)
	}
}

func (w *watchdog) warn(err error) {
	w.log.Warn("leaving the group failed, its partitions rest until the session times out",
		"error", w.cfg.errorText(err))
}

// removeStatic removes a static member, since sarama does not let static members leave.
func (w *watchdog) removeStatic(client sarama.Client) error {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return err
	}
	_, err = admin.RemoveMemberFromConsumerGroup(w.cfg.Group, []string{w.cfg.InstanceID})
	return err
}
