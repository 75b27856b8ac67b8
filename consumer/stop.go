package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer/internal/conns"
)

// The times of a stop, beyond what handlers take. Run returns at the latest after Config.endWait and the sum of them.
const (
	// commitWait bounds how long the end of a claim waits for its commit.
	commitWait = 5 * time.Second
	// releaseWait is how long sarama may take to end a session whose claims have ended. It waits for fetches under way, and
	// in a rebalance for a rejoin, which may take a minute.
	releaseWait = time.Second
	// leaveWait bounds how long leaving the group may take. Then the connections are cut, and the brokers notice by the
	// session's time-out.
	leaveWait = 3 * time.Second
)

// watchEnd is how often a stop looks whether the claims have ended.
const watchEnd = 25 * time.Millisecond

// watchdog bounds the time between the end of ctx and that of Consume, which may hang in a request. Without a session there
// is nothing to finish and it cuts the connections at once. With one it lets the claims end, and commit, before. When
// Consume has returned, the connections may be opened again.
func (c *Consumer) watchdog(ctx context.Context, links *conns.Conns, consumed <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-consumed:
		return
	}
	defer links.Mend()
	c.log.Info("consumer stops: nothing new begins, running handlers are given the grace", "grace", c.cfg.Grace)
	if c.handler.joined() {
		if c.awaitClaims(consumed) {
			return
		}
		c.log.Info("the group rebalances or brokers do not answer, cutting the connections")
	}
	links.Cut()
	<-consumed
}

// awaitClaims waits until the claims have ended and sarama had releaseWait to end the session, or until their time is over.
// It reports whether Consume has returned.
func (c *Consumer) awaitClaims(consumed <-chan struct{}) bool {
	limit := time.NewTimer(c.cfg.endWait() + commitWait + releaseWait)
	defer limit.Stop()
	tick := time.NewTicker(watchEnd)
	defer tick.Stop()
	var released <-chan time.Time // nil as long as there are claims
	for {
		select {
		case <-consumed:
			return true
		case <-limit.C:
			return false
		case <-released:
			return false
		case <-tick.C:
			if released == nil && c.handler.released() {
				released = time.After(releaseWait)
			}
		}
	}
}

// leave gives up the membership. A static member keeps it, so that a restart moves no partition, unless remove is set.
func (c *Consumer) leave(group sarama.ConsumerGroup, client sarama.Client, links *conns.Conns, remove bool) {
	cut := time.AfterFunc(leaveWait, links.Cut)
	defer cut.Stop()
	if remove && c.cfg.InstanceID != "" {
		if err := c.removeStatic(client); err != nil {
			c.log.Warn("leaving the group failed, its partitions rest until the session times out", "error", c.cfg.errorText(err))
		}
	}
	if err := group.Close(); err != nil && !errors.Is(err, sarama.ErrClosedClient) {
		c.log.Warn("leaving the group failed, its partitions rest until the session times out", "error", c.cfg.errorText(err))
	}
}
