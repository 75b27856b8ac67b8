package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/deadletters"
)

// replayFlags bound a replay.
type replayFlags struct {
	rate  float64
	limit int
	lines []deadletters.Exported // of an exported file
}

func newDLQReplay(a *app) *cobra.Command {
	var o dlqFlags
	var chosen filterFlags
	var bounds replayFlags
	var decided deadletters.Decisions
	var from string
	cmd := &cobra.Command{
		Use: "replay", Short: "Let the events of dead letters run again", Args: cobra.NoArgs,
		Long: "Reopens each event in the store, then publishes a copy of its dead letter to the\n" +
			"group's own retry topic <topic>.<group>.retry, which no other group reads.\n" +
			"Events that were handled are skipped. The dead letters stay in their topic: see\n" +
			"purge.\n" +
			"\n" +
			"You can interrupt the command and repeat it. A reopened event keeps its position\n" +
			"until a copy runs, and the store lets one copy of a position run.\n" +
			"\n" +
			"--from takes the dead letters of an exported file, with values that were edited\n" +
			"there. All else comes from the dead-letter topic: a line that differs from its\n" +
			"record is refused.",
		Example: "  idem dlq replay --topic orders -G billing --class timeout --rate 10\n" +
			"  idem dlq replay --topic orders -G billing --at 0/14 --yes\n" +
			"  idem dlq replay --topic orders -G billing --from exported.jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := chosen.filter()
			if err != nil {
				return err
			}
			if err := checkLimit(bounds.limit, 0, math.MaxInt); err != nil {
				return err
			}
			if bounds.rate < 0 {
				return usage("--rate is negative")
			}
			if from != "" {
				if chosen.isSet() {
					return usage("--from or a filter, not both")
				}
				if bounds.lines, err = readExported(from); err != nil {
					return err
				}
				f.At = placesOf(bounds.lines)
			}
			d, err := a.openDLQ(cmd.Context(), &o, true)
			if err != nil {
				return err
			}
			d.decisions = decided
			producer, err := consumer.NewProducer(d.Client)
			if err != nil {
				return err
			}
			defer producer.Close()
			return d.replay(cmd.Context(), producer, f, bounds)
		},
	}
	o.add(cmd.Flags())
	chosen.add(cmd.Flags())
	cmd.Flags().StringVar(
		&from, "from", "", "replay the dead letters of this `file` of idem dlq export or edit",
	)
	cmd.Flags().Float64Var(&bounds.rate, "rate", 0, "at most so many a second; 0: no limit")
	cmd.Flags().IntVar(&bounds.limit, "limit", 0, "replay at most so many; 0: no limit")
	decisionFlags(cmd.Flags(), &decided)
	return cmd
}

func (d *deadLetters) replay(
	ctx context.Context, producer idem.Producer, f deadletters.Filter, bounds replayFlags,
) (err error) {
	s, err := d.survey(ctx, f, bounds.lines...)
	if err != nil {
		return err
	}
	if s.Matched == 0 && len(bounds.lines) == 0 {
		d.app.note("%s: %d records, no dead letter matches", d.Topic, s.Scanned)
		none := d.NoResult(s)
		none.DryRun = d.app.dryRun
		return d.app.reportReplay(none)
	}
	d.warnAboutReaders(s)
	most := ""
	if bounds.limit > 0 {
		most = fmt.Sprintf(" At most %d are replayed.", bounds.limit)
	}
	most += editedText(bounds.lines)
	if err := unlessDryRun(d.app.confirmed(
		"dlq replay", map[string]any{"topic": d.Topic, "group": d.Group},
		"%s: of %d records, %d dead letters match. "+
			"Those whose events are not settled are copied to %s.%s",
		d.Topic, s.Scanned, s.Matched, strings.Join(s.RetryTopics(d.Group), ", "), most,
	)); err != nil {
		return err
	}
	seen := d.app.progress("dead letters", int64(s.Matched))
	result, err := d.Replay(ctx, deadletters.Replay{
		Producer: producer, Filter: f, Decisions: d.decisions, Rate: bounds.rate,
		Limit: bounds.limit, Survey: s, Exported: bounds.lines, DryRun: d.app.dryRun,
		Each: func(done deadletters.Done) {
			seen.add(1, nil)
			d.auditEdit(done, seen)
		},
		Audit: func(fields map[string]any) { seen.end(); d.app.audit("dlq replay", fields) },
	})
	switch {
	case result.Outcome == deadletters.OutcomeInterrupted:
		err = errors.New("interrupted: repeat the command to go on")
	case errors.Is(err, deadletters.ErrNoRetryTopic), errors.Is(err, deadletters.ErrCopyTooLarge):
		err = found("%w", err)
	}
	return errors.Join(err, d.app.reportReplay(result))
}

// reportReplay prints the result.
func (a *app) reportReplay(p deadletters.Result) error {
	rows := [][]string{{"scanned", fmt.Sprint(p.Scanned)}, {"replayed", fmt.Sprint(p.Replayed)}}
	for _, v := range slices.Sorted(maps.Keys(p.Verdicts)) {
		rows = append(rows, []string{"  " + string(v), fmt.Sprint(p.Verdicts[v])})
	}
	for _, at := range p.Attention {
		rows = append(rows, []string{"  " + at.Record, oneLine(string(at.Verdict) + ": " + at.Note)})
	}
	return a.show(p, []string{p.Outcome, p.Topic}, rows)
}
