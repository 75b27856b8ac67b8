package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/deadletters"
)

func newDLQDiscard(a *app) *cobra.Command {
	var o dlqFlags
	var chosen filterFlags
	var reason string
	cmd := &cobra.Command{
		Use: "discard", Short: "Give dead letters up for good", Args: cobra.NoArgs,
		Long: "Gives up the chosen dead letters for good: replays skip them, and purge may\n" +
			"delete them. Use discard for records that no handler can take, such as values\n" +
			"that are no JSON.\n" +
			"\n" +
			"If the event is dead in the store, no later delivery runs. If the store does not\n" +
			"know the event, a good copy with the same ID may still run. Events that were\n" +
			"handled, that wait for a handler, or that block their queue are left alone (for\n" +
			"the latter see idem event skip).",
		Example: "  idem dlq discard --topic orders --class not-json " +
			"--reason 'test records of a load generator'\n" +
			"  idem dlq discard --topic orders --at 0/17 --reason 'the customer has cancelled'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := chosen.filter()
			switch {
			case err != nil:
				return err
			case reason == "":
				return usage("no reason: give --reason, which the store and the audit line keep")
			case !chosen.isSet():
				return usage(
					"which dead letters? give --at, --class, --type, --id, --since or --until",
				)
			}
			d, err := a.openDLQ(cmd.Context(), &o, true)
			if err != nil {
				return err
			}
			return d.discard(cmd.Context(), f, reason)
		},
	}
	o.add(cmd.Flags())
	chosen.add(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the store and the audit line; required")
	return cmd
}

// maxAudited bounds how many dead letters an audit line names.
const maxAudited = 100

// discard gives up the dead letters that the filter chooses. The audit line names them, or the
// first hundred.
func (d *deadLetters) discard(ctx context.Context, f deadletters.Filter, reason string) error {
	s, err := d.survey(ctx, f)
	if err != nil {
		return err
	}
	if s.Matched == 0 {
		return found("%s: %d records, no dead letter matches", d.Topic, s.Scanned)
	}
	fields := map[string]any{"topic": d.Topic, "group": d.Group, "reason": reason}
	if err := unlessDryRun(d.app.confirmed(
		"dlq discard", fields, "%s: of %d records, %d dead letters match. "+
			"Dead letters that no worker handles are given up for good.",
		d.Topic, s.Scanned, s.Matched,
	)); err != nil {
		return err
	}
	w, err := d.app.rows("RECORD", "CLASS", "EVENT", "VERDICT", "RESULT", "NOTE")
	if err != nil {
		return err
	}
	w.list = "dead_letters"
	var records []string
	var printing error
	done, err := d.Discard(
		ctx,
		deadletters.Discard{Filter: f, Reason: reason, DryRun: d.app.dryRun, Each: func(
			l deadletters.Discarded,
		) {
			result := "left alone"
			if l.Done {
				result = "discarded"
				if len(records) < maxAudited {
					records = append(records, l.Record)
				}
			}
			r := discardRow{Row: l.Row, Result: result}
			printing = errors.Join(
				printing,
				w.add(
					r, r.Record, string(r.Class), eventText(&r.Row), string(r.Verdict), result,
					brief(r.Note, 100),
				),
			)
		}},
	)
	fields["discarded"], fields["records"] = done, records
	fields["outcome"] = deadletters.OutcomeOf(ctx, err)
	d.app.audit("dlq discard", fields)
	if !d.app.dryRun {
		d.app.note("%s: %d of %d dead letters discarded", d.Topic, done, s.Matched)
	}
	view := discardView{dryRunView{d.app.dryRun}, d.Topic, d.Group, s.Matched, done}
	return errors.Join(err, printing, w.endWith(view))
}

// discardView is the result beside its rows.
type discardView struct {
	dryRunView
	Topic     string `json:"topic"`
	Group     string `json:"group"`
	Matched   int    `json:"matched"`
	Discarded int    `json:"discarded"`
}

type discardRow struct {
	deadletters.Row
	Result string `json:"result"`
}
