package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/idem-go/idem/examples/internal/kafkagroup"
)

// This file waits for conditions. The services answer, not the programs.

// condition reports whether a condition holds.
type condition func(context.Context) (bool, error)

// until waits for a condition, shows the progress, and fails if a program fails.
func (c *chain) until(ctx context.Context, done condition) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		switch ok, err := done(ctx); {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case passing(err):
		case ok || err != nil:
			return err
		}
		for _, p := range c.programs {
			if err := p.failure(); err != nil {
				return err
			}
		}
		if c.begun {
			c.progress(func() string { return c.standing(ctx) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// passing reports whether a Kafka error is temporary. A broker without groups creates the topic of
// their offsets for the first group, and has no coordinator until then. All waits are bounded.
func passing(err error) bool {
	said, ok := errors.AsType[*kerr.Error](err)
	return ok && said.Retriable
}

// standing describes the progress.
func (c *chain) standing(ctx context.Context) string {
	paid, err := c.count(ctx, `SELECT count(*) FROM {o}.orders WHERE status = 'paid'`)
	told, err2 := c.notifications()
	if err := errors.Join(err, err2); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("payments %5d   orders paid %5d   notifications %5d",
		c.clients.answered.Load(), paid, len(told))
}

// joined reports whether all workers are in their groups.
func (c *chain) joined(ctx context.Context) (bool, error) {
	for group, topic := range map[string]string{
		c.orderGroup: c.payments, c.notifierGroup: c.orders,
	} {
		have, err := c.assigned(ctx, group, topic)
		if err != nil || len(have) < 2 {
			return false, err
		}
	}
	return true, nil
}

// settle waits until no payment and no event is under way.
func (c *chain) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, quietTime, errNotQuiet)
	defer cancel()
	return c.until(ctx, c.quiet)
}

// quiet reports whether all queues are empty. The order of the checks is the order in which events
// pass.
func (c *chain) quiet(ctx context.Context) (bool, error) {
	for _, at := range []struct{ outbox, group, topic string }{
		{"{p}", c.orderGroup, c.payments}, {"{o}", c.notifierGroup, c.orders},
	} {
		n, err := c.count(ctx, `SELECT count(*) FROM `+at.outbox+`.idem_outbox`)
		if err != nil || n > 0 {
			return false, err
		}
		done, err := kafkagroup.Committed(ctx, c.admin, at.group, at.topic)
		if err != nil || !done {
			return false, err
		}
	}
	return true, nil
}

// get returns the status and the body of an answer.
func get(ctx context.Context, url string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, body, err
}
