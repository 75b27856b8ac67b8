package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/replay"
)

// replayOptions are the flags of a replay: payments of a time go through the handler again, for
// example after a restore of the orders.
type replayOptions struct {
	from, to    string // as on the command line
	name        string
	rate        int
	skipDeleted bool
	yes         bool
	begin, end  time.Time // of the window, from the flags
}

// flags adds the flags of a replay.
func (r *replayOptions) flags(flags *flag.FlagSet) {
	flags.StringVar(&r.from, "replay-from", "",
		"replay the payments from this `time` on instead of working: 2026-01-31T12:00:00Z,\n"+
			"or 24h for 24 hours ago")
	flags.StringVar(&r.to, "replay-to", "0s", "end of the `time` of a replay")
	flags.StringVar(&r.name, "replay-name", "",
		"`name` of a replay that handles each payment once more;\n"+
			"default: only payments that the store does not have")
	flags.IntVar(&r.rate, "replay-rate", 0, "payments per second of a replay; default: no limit")
	flags.BoolVar(&r.skipDeleted, "replay-skip-deleted", false,
		"replay the rest of a time of which Kafka may have deleted a part")
	flags.BoolVar(&r.yes, "yes", false, "run the replay; default: only print the plan")
}

// check returns a mistake in the flags, and sets the times of the window.
func (r *replayOptions) check(now time.Time) (err error) {
	if r.from == "" {
		if r.yes || r.name != "" || r.rate != 0 || r.skipDeleted || r.to != "0s" {
			return errors.New("-replay-from is missing")
		}
		return nil
	}
	if r.begin, err = moment(r.from, now); err != nil {
		return fmt.Errorf("-replay-from: %w", err)
	}
	if r.end, err = moment(r.to, now); err != nil {
		return fmt.Errorf("-replay-to: %w", err)
	}
	if !r.begin.Before(r.end) {
		return errors.New("-replay-to is not after -replay-from")
	}
	return nil
}

// moment reads a time, or how long ago.
func moment(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf(
			"%q is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 24h", text)
	}
	return t, nil
}

// maxFailedShown bounds the failed payments in the output.
const maxFailedShown = 20

// run prints the plan and, with -yes, replays the payments beside the running workers.
func (r *replayOptions) run(
	ctx context.Context, live consumer.Config, router *idem.Router, out io.Writer,
) (err error) {
	cfg := replay.Config{
		Window: replay.Between(r.begin, r.end), Scope: replay.SameScope(), Rate: r.rate,
		SkipDeleted: r.skipDeleted,
	}
	if r.name != "" {
		cfg.Scope = replay.OwnScope(r.name)
	}
	again, err := replay.New(live, router, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, again.Close()) }()
	plan, err := again.Plan(ctx)
	if err != nil {
		return err
	}
	if _, err := plan.WriteTo(out); err != nil {
		return err
	}
	if !r.yes {
		_, err := fmt.Fprintln(out, "nothing was replayed: add -yes to run this plan")
		return err
	}
	result, err := again.Run(ctx, plan, replay.NewBar(out).Update)
	printFailed(out, result.Failed)
	if err != nil && !result.Complete && ctx.Err() != nil {
		// relative times have moved on by then
		_, _ = fmt.Fprintf(out, "interrupted: continue with -replay-from %s -replay-to %s\n",
			r.begin.UTC().Format(time.RFC3339Nano), r.end.UTC().Format(time.RFC3339Nano))
	}
	return err
}

// printFailed prints the first failed payments, each in a line. Producers choose the IDs, so the
// line has them in quotes, without control characters for the terminal.
func printFailed(out io.Writer, failed []replay.Failed) {
	for i, f := range failed {
		if i == maxFailedShown {
			_, _ = fmt.Fprintf(out, "and %d more\n", len(failed)-i)
			break
		}
		_, _ = fmt.Fprintf(out, "failed: %s/%d/%d payment %q: %s %q\n",
			f.Topic, f.Partition, f.Offset, f.Key.ID, f.Class, f.Error)
	}
}
