package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// replay lets both groups consume all records once more, with the operator's command, and compares
// the ends before and after.
func (c *chain) replay(ctx context.Context, s *summary) error {
	c.say("all queues are empty; the workers stop, and begin again with the first record")
	var workers []*program
	for _, p := range c.programs {
		if strings.HasPrefix(p.name, "orders") || strings.HasPrefix(p.name, "notifier") {
			workers = append(workers, p)
		}
	}
	for _, p := range workers {
		if err := p.stop(45 * time.Second); err != nil {
			return err
		}
	}
	for _, group := range []string{c.orderGroup, c.notifierGroup} {
		if err := c.leave(ctx, group); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, filepath.Join(c.dir, "idem"), "rewind", "--brokers",
			strings.Join(c.o.brokers, ","),
			"--group", group, "--to", "24h", "--yes")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("idem rewind: %w\n%s", err, out)
		}
	}
	from := 0
	for _, p := range workers {
		if err := p.start(); err != nil {
			return err
		}
		from = p.runs // all have the same number of starts
	}
	if s.hung = c.settle(ctx); s.hung == nil {
		// a worker that is stopped while it joins must wait for the broker
		s.hung = c.until(ctx, c.joined)
	}
	if s.hung != nil && !errors.Is(s.hung, errTimeUp) {
		return s.hung
	}
	for _, p := range workers { // the final counts of a worker are complete
		if err := p.stop(45 * time.Second); err != nil {
			return err
		}
	}
	before := s.found
	if err := c.measure(s); err != nil {
		return err
	}
	s.changed = s.found != before
	for _, kind := range []string{"orders", "notifier"} {
		again, err := c.counted(kind, from)
		if err != nil {
			return err
		}
		s.again += again["duplicates"]
	}
	return nil
}
