package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/deadletters"
)

func newDLQCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Dead letters: list, look, plan, replay, discard, purge",
		Long: "Dead letters of a consumer group. Kafka has no index: each command reads the dead-letter topic from its beginning to\n" +
			"its present end and says how much that was. What became of an event is what the store says: dead letters stay in their\n" +
			"topic when they are replayed, until they are purged.",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(
		newDLQList(a), newDLQShow(a), newDLQPlan(a), newDLQReplay(a), newDLQDiscard(a),
		newDLQPurge(a),
	)
	return cmd
}

// dlqFlags are those of all commands.
type dlqFlags struct {
	topic, dlq string
}

func (o *dlqFlags) add(f *pflag.FlagSet) {
	f.StringVarP(
		&o.topic, "topic", "t", "", "source topic; its dead letters are in <topic>.<group>.dlq",
	)
	f.StringVar(&o.dlq, "dlq", "", "dead-letter topic, if it has another name")
}

// name is that of the dead-letter topic.
func (o *dlqFlags) name(a *app) (string, error) {
	switch {
	case o.dlq != "" && o.topic != "":
		return "", usage("--topic or --dlq, not both")
	case o.dlq != "":
		return o.dlq, nil
	case o.topic == "":
		return "", usage("which dead letters? give --topic, or --dlq")
	}
	group, err := a.theGroup()
	if err != nil {
		return "", err
	}
	return deadletter.Topic(group)(o.topic), nil
}

// filterFlags choose dead letters.
type filterFlags struct {
	types, classes []string
	id             string
	since, until   string
	at             []string
}

func (o *filterFlags) add(f *pflag.FlagSet) {
	f.StringSliceVar(&o.types, "type", nil, "event types")
	f.StringSliceVar(
		&o.classes, "class", nil, "error classes, such as failed, permanent, undecodable",
	)
	f.StringVar(&o.id, "id", "", "event ID")
	f.StringVar(&o.since, "since", "", "failed at or after: RFC 3339, or how long ago, such as 90m")
	f.StringVar(&o.until, "until", "", "failed before: RFC 3339, or how long ago")
	f.StringSliceVar(&o.at, "at", nil, "this record, <partition>/<offset>")
}

func (o *filterFlags) filter() (f deadletters.Filter, err error) {
	f = deadletters.Filter{Types: o.types, Classes: o.classes, ID: o.id}
	if f.Since, err = parseTime("since", o.since); err != nil {
		return f, err
	}
	if f.Until, err = parseTime("until", o.until); err != nil {
		return f, err
	}
	for _, text := range o.at {
		p, err := parsePlace(text)
		if err != nil {
			return f, err
		}
		f.At = append(f.At, p)
	}
	return f, nil
}

// parsePlace reads <partition>/<offset>.
func parsePlace(text string) (deadletters.Place, error) {
	p, err := deadletters.ParsePlace(text)
	if err != nil {
		return p, usage("%w", err)
	}
	return p, nil
}

// parseTime reads an instant, or how long ago it was.
func parseTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, usage(
			"--%s is a time such as 2026-01-31T12:00:00Z, or how long ago, such as 90m, not %q",
			flag, text,
		)
	}
	return time.Now().Add(-d), nil
}

// deadLetters is a dead-letter topic with the app of the command.
type deadLetters struct {
	*deadletters.Queue
	app       *app
	decisions deadletters.Decisions
}

// decisionFlags adds the flags for the decisions of a person about dead letters that are otherwise
// left alone.
func decisionFlags(f *pflag.FlagSet, o *deadletters.Decisions) {
	f.BoolVar(
		&o.Again,
		"again",
		false,
		fmt.Sprintf(
			"also events that were replayed %d times before and came back",
			deadletters.MaxGenerations,
		),
	)
	f.BoolVar(
		&o.Forgotten, "forgotten", false,
		"let events run that the store does not know, however old they are: it may have forgotten that they were handled",
	)
}

// openDLQ connects to Kafka, and to the stores if they are to be asked.
func (a *app) openDLQ(ctx context.Context, o *dlqFlags, ask bool) (*deadLetters, error) {
	topic, err := o.name(a)
	if err != nil {
		return nil, err
	}
	cfg := deadletters.Config{
		Topic: topic, Source: o.topic, Group: a.group, Scope: cmp.Or(a.scope, a.group),
	}
	if ask {
		if _, err := a.theGroup(); err != nil {
			return nil, err
		}
		ledgers, err := a.openStores(ctx)
		if err != nil {
			return nil, err
		}
		cfg.Stores = shared(ledgers)
	}
	if cfg.Client, err = a.kafka(); err != nil {
		return nil, err
	}
	q, err := deadletters.Open(cfg)
	switch {
	case errors.Is(err, deadletters.ErrNoOperator):
		return nil, usage("%w", err)
	case errors.Is(err, deadletters.ErrNoTopic):
		return nil, found("%w", err)
	case err != nil:
		return nil, err
	}
	return &deadLetters{Queue: q, app: a}, nil
}

// survey reads the topic once.
func (d *deadLetters) survey(
	ctx context.Context, f deadletters.Filter,
) (*deadletters.Survey, error) {
	s, err := d.Survey(ctx, f)
	if errors.Is(err, deadletters.ErrTooMany) {
		return nil, usage("%w: choose fewer, with --type or --id", err)
	}
	return s, err
}

// note prints a remark beside the result.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.stderr, plain(a.redact(fmt.Sprintf(format, args...))))
}

func newDLQList(a *app) *cobra.Command {
	var o dlqFlags
	var chosen filterFlags
	var limit int
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List dead letters", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := chosen.filter()
			if err != nil {
				return err
			}
			d, err := a.openDLQ(cmd.Context(), &o, false)
			if err != nil {
				return err
			}
			return d.list(cmd.Context(), f, limit)
		},
	}
	o.add(cmd.Flags())
	chosen.add(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after so many")
	return cmd
}

func (d *deadLetters) list(ctx context.Context, f deadletters.Filter, limit int) error {
	w, err := d.app.rows("RECORD", "FAILED", "CLASS", "EVENT", "ATTEMPTS", "REOPENED", "ERROR")
	if err != nil {
		return err
	}
	scanned, err := d.List(ctx, f, func(l *deadletters.Found) (bool, error) {
		r := l.Row()
		err := w.add(
			r, r.Record, failedText(&r), cmp.Or(string(r.Class), string(deadletters.SeenForeign)),
			eventText(&r), strconv.Itoa(r.Attempts), strconv.FormatUint(uint64(r.Generation), 10),
			shorten(cmp.Or(r.Error, r.Problem), 80),
		)
		return limit <= 0 || w.n < limit, err
	})
	d.app.note("%s: %d of %d records, %d shown", d.Topic, scanned, d.Size(), w.n)
	return errors.Join(err, w.end())
}

func newDLQShow(a *app) *cobra.Command {
	var o dlqFlags
	var payload bool
	cmd := &cobra.Command{
		Use: "show <partition>/<offset>", Short: "Show a dead letter", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := parsePlace(args[0])
			if err != nil {
				return err
			}
			d, err := a.openDLQ(cmd.Context(), &o, false)
			if err != nil {
				return err
			}
			return d.show(cmd.Context(), at, payload)
		},
	}
	o.add(cmd.Flags())
	cmd.Flags().
		BoolVar(&payload, "payload", false, "show the value too: it may hold what few should see (G-04)")
	return cmd
}

func (d *deadLetters) show(ctx context.Context, at deadletters.Place, payload bool) error {
	l, err := d.Get(ctx, at)
	if errors.Is(err, deadletters.ErrNoRecord) {
		return found("%s has no record %s", d.Topic, at)
	}
	if err != nil {
		return err
	}
	detail := l.Detail(payload)
	return d.app.show(detail, []string{"", ""}, detailRows(&detail))
}

func detailRows(t *deadletters.Detail) [][]string {
	size := strconv.Itoa(t.Size) + " bytes"
	if t.Omitted {
		size += ", the record's own value is at its origin"
	}
	rows := [][]string{
		{"record", t.Topic + "/" + t.Record}, {"kafka key", bytesText(t.Key)}, {"value", size},
	}
	if t.Problem != "" {
		rows = append(rows, []string{"problem", t.Problem})
	}
	for _, h := range t.Headers {
		rows = append(rows, []string{h.Key, bytesText(h.Bytes)})
	}
	if t.Payload != nil {
		rows = append(rows, []string{"payload", bytesText(*t.Payload)})
	}
	for _, row := range rows {
		for i := range row {
			row[i] = plain(strings.TrimSpace(row[i]))
		}
	}
	return rows
}

func newDLQPlan(a *app) *cobra.Command {
	var o dlqFlags
	var chosen filterFlags
	var limit int
	var decided deadletters.Decisions
	cmd := &cobra.Command{
		Use: "plan", Short: "Say what a replay would do", Args: cobra.NoArgs,
		Long: "Asks the store about the event of each dead letter and says what a replay would do. Nothing is changed. Reads the topic\n" +
			"twice: dead letters of one event that differ are not replayed until one is chosen with --at.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := chosen.filter()
			if err != nil {
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
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after so many")
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
			string(r.Verdict), r.Action, shorten(r.Note, 100),
		)
		return limit <= 0 || w.n < limit, err
	})
	d.app.note(
		"%s: %d of %d records, %d dead letters match, %d shown: %s", d.Topic,
		max(s.Scanned, scanned), d.Size(), s.Matched, w.n, countsText(counts),
	)
	return errors.Join(err, w.end())
}
