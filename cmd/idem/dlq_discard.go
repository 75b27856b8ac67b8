package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/deadletters"
)

func newDLQDiscard(a *app) *cobra.Command {
	var o dlqFlags
	var chosen filterFlags
	var reason string
	cmd := &cobra.Command{
		Use: "discard", Short: "Give dead letters up for good", Args: cobra.NoArgs,
		Long: "Gives the chosen dead letters up for good: no replay takes them, and purge may delete them. It is the way out for records that\n" +
			"no handler will ever take, such as what is no JSON. If the store knows the event as dead, no delivery of it runs any more; if it\n" +
			"knows no event, a good copy with the same ID may still come. What was handled, what is still to be handled, and what blocks its\n" +
			"queue (see idem event skip) is left alone.",
		Example: "  idem dlq discard --topic orders --class not-json --reason 'test records of a load generator'\n" +
			"  idem dlq discard --topic orders --at 0/17 --reason 'the customer has cancelled'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := chosen.filter()
			switch {
			case err != nil:
				return err
			case reason == "":
				return usage("why? give --reason: it is kept in the store and in the audit line")
			case !chosen.any():
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

// any reports whether something was chosen.
func (o *filterFlags) any() bool {
	return len(o.types)+len(o.classes)+len(o.at) > 0 || o.id != "" || o.since != "" || o.until != ""
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
	if err := d.app.confirmed("dlq discard", fields, "%s: of %d records, %d dead letters match. Those that nobody works on are given up for good.",
		d.Topic, s.Scanned, s.Matched); err != nil {
		return err
	}
	w, err := d.app.rows("RECORD", "CLASS", "EVENT", "VERDICT", "RESULT", "NOTE")
	if err != nil {
		return err
	}
	var records []string
	var printing error
	done, err := d.Discard(
		ctx,
		deadletters.Discard{Filter: f, Reason: reason, Each: func(l deadletters.Discarded) {
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
					shorten(r.Note, 100),
				),
			)
		}},
	)
	fields["discarded"], fields["records"], fields["outcome"] = done, records, deadletters.OutcomeOf(
		ctx, err,
	)
	d.app.audit("dlq discard", fields)
	d.app.note(
		"%s: %s of %s dead letters discarded", d.Topic, strconv.Itoa(done), strconv.Itoa(s.Matched),
	)
	return errors.Join(err, printing, w.end())
}

type discardRow struct {
	deadletters.Row
	Result string `json:"result"`
}
