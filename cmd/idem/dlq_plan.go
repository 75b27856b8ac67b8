package main

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/deadletters"
)

func newDLQPlan(a *app) *cobra.Command {
	var o dlqFlags
	var chosen filterFlags
	var limit int
	var decided deadletters.Decisions
	cmd := &cobra.Command{
		Use: "plan", Short: "Print the actions of a replay", Args: cobra.NoArgs,
		Long: "Asks the store about the event of each dead letter and prints the action that a\n" +
			"replay would take. The command changes no state and reads the topic twice.\n" +
			"Dead letters of one event with different values are not replayed until --at\n" +
			"chooses one.",
		Example: "  idem dlq plan --topic orders -G billing --brokers localhost:9092 " +
			"--store postgres://idem@db/shop\n" +
			"  idem dlq plan --topic orders -G billing --type order.created --limit 20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := chosen.filter()
			if err != nil {
				return err
			}
			if err := checkLimit(limit, 0, math.MaxInt); err != nil {
				return err
			}
			d, err := a.openDLQ(cmd.Context(), &o, true)
			if err != nil {
				return err
			}
			d.decisions = decided
			return d.plan(cmd.Context(), f, limit)
		},
	}
	o.add(cmd.Flags())
	chosen.add(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after so many; 0: no limit")
	decisionFlags(cmd.Flags(), &decided)
	return cmd
}

func (d *deadLetters) plan(ctx context.Context, f deadletters.Filter, limit int) error {
	w, err := d.app.rows("RECORD", "FAILED", "CLASS", "EVENT", "VERDICT", "REPLAY", "NOTE")
	if err != nil {
		return err
	}
	s, err := d.survey(ctx, f)
	if err != nil {
		return err
	}
	d.warnAboutReaders(s)
	counts := make(map[deadletters.Verdict]int)
	scanned, err := d.EachJudged(ctx, f, s, d.decisions, func(j *deadletters.Judged) (bool, error) {
		counts[j.Verdict]++
		r := j.Row()
		err := w.add(
			r, r.Record, failedText(&r), cmp.Or(string(r.Class), "-"), eventText(&r),
			string(r.Verdict), r.Action, brief(r.Note, 100),
		)
		return limit <= 0 || w.n < limit, err
	})
	d.app.note(
		"%s: %d of %d records, %d dead letters match, %d shown: %s", d.Topic,
		max(s.Scanned, scanned), d.Size(), s.Matched, w.n, countsText(counts),
	)
	return errors.Join(err, w.end())
}
