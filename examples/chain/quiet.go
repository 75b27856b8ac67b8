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

// This file waits. It asks the services, not the programs.

// condition reports whether what is waited for has come.
type condition func(context.Context) (bool, error)

// until waits for a condition, says how far things are, and looks after the programs.
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

// passing reports whether Kafka says of an error that it is one of the moment: a broker that has never had a group makes the topic of their
// offsets when the first one comes, and has no coordinator until then. All waiting is bounded.
func passing(err error) bool {
	said, ok := errors.AsType[*kerr.Error](err)
	return ok && said.Retriable
}

// standing is how far things are.
func (c *chain) standing(ctx context.Context) string {
	paid, err := c.count(ctx, `SELECT count(*) FROM {o}.orders WHERE status = 'paid'`)
	told, err2 := c.notifications()
	if err := errors.Join(err, err2); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("payments %5d   orders paid %5d   notifications %5d", c.clients.answered.Load(), paid, len(told))
}

// joined waits until all workers have partitions, or would have.
func (c *chain) joined(ctx context.Context) (bool, error) {
	for group, topic := range map[string]string{c.orderGroup: c.payments, c.notifierGroup: c.orders} {
		have, err := c.assigned(ctx, group, topic)
		if err != nil || len(have) < 2 {
			return false, err
		}
	}
	return true, nil
}

// settle waits until nothing is on its way any more.
func (c *chain) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, quietTime, errNotQuiet)
	defer cancel()
	return c.until(ctx, c.quiet)
}

// quiet looks at the places where something may wait, in the order in which it passes through them.
func (c *chain) quiet(ctx context.Context) (bool, error) {
	for _, at := range []struct{ outbox, group, topic string }{
		{"{p}", c.orderGroup, c.payments}, {"{o}", c.notifierGroup, c.orders},
	} {
		n, err := c.count(ctx, `SELECT count(*) FROM `+at.outbox+`.idem_outbox`)
		if err != nil || n > 0 {
			return false, err
		}
		if done, err := kafkagroup.Committed(ctx, c.admin, at.group, at.topic); err != nil || !done {
			return false, err
		}
	}
	return true, nil
}

// get returns status and body of an answer.
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
