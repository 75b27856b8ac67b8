package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

func newDLQCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Dead letters: list, look, plan, replay, purge",
		Long: "Dead letters of a consumer group. Kafka has no index: each command reads the dead-letter topic from its beginning to\n" +
			"its present end and says how much that was. What became of an event is what the ledger says: letters stay in their\n" +
			"topic when they are replayed, until they are purged.",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newDLQList(a), newDLQShow(a), newDLQPlan(a), newDLQReplay(a), newDLQPurge(a))
	return cmd
}

// dlqFlags are those of all commands.
type dlqFlags struct {
	topic, dlq string
}

func (o *dlqFlags) add(f *pflag.FlagSet) {
	f.StringVarP(&o.topic, "topic", "t", "", "source topic; its dead letters are in <topic>.<group>.dlq")
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
	return idem.DeadLetterTopic(group)(o.topic), nil
}

// filterFlags choose letters.
type filterFlags struct {
	types, classes []string
	id             string
	since, until   string
	at             []string
}

func (o *filterFlags) add(f *pflag.FlagSet) {
	f.StringSliceVar(&o.types, "type", nil, "event types")
	f.StringSliceVar(&o.classes, "class", nil, "error classes, such as failed, permanent, undecodable")
	f.StringVar(&o.id, "id", "", "event ID")
	f.StringVar(&o.since, "since", "", "failed at or after: RFC 3339, or how long ago, such as 90m")
	f.StringVar(&o.until, "until", "", "failed before: RFC 3339, or how long ago")
	f.StringSliceVar(&o.at, "at", nil, "this record, <partition>/<offset>")
}

func (o *filterFlags) filter() (f letterFilter, err error) {
	f = letterFilter{types: o.types, classes: o.classes, id: o.id}
	if f.since, err = parseTime("since", o.since); err != nil {
		return f, err
	}
	if f.until, err = parseTime("until", o.until); err != nil {
		return f, err
	}
	for _, text := range o.at {
		p, err := parsePlace(text)
		if err != nil {
			return f, err
		}
		f.at = append(f.at, p)
	}
	return f, nil
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
		return time.Time{}, usage("--%s is a time such as 2026-01-31T12:00:00Z, or how long ago, such as 90m, not %q", flag, text)
	}
	return time.Now().Add(-d), nil
}

// deadLetters is a dead-letter topic, as far as it reached when the command began.
type deadLetters struct {
	app     *app
	client  sarama.Client
	topic   string
	source  string // where the letters must come from, if a topic was named
	spans   []span
	group   string
	scope   string
	ledgers []*ledger
	decisions
}

// decisions are what a person says to letters that are left alone otherwise.
type decisions struct {
	again     bool // those that were reopened often
	forgotten bool // those that the ledger does not know any longer
}

func (o *decisions) add(f *pflag.FlagSet) {
	f.BoolVar(&o.again, "again", false, fmt.Sprintf("also events that were reopened %d times before", maxGenerations))
	f.BoolVar(&o.forgotten, "forgotten", false, "let events run that the ledger does not know, however old they are: it may have forgotten that they were handled")
}

// openDLQ connects to Kafka, and to the ledgers if they are to be asked.
func (a *app) openDLQ(ctx context.Context, o *dlqFlags, ask bool) (*deadLetters, error) {
	topic, err := o.name(a)
	if err != nil {
		return nil, err
	}
	d := &deadLetters{app: a, topic: topic, source: o.topic, group: a.group, scope: cmp.Or(a.scope, a.group)}
	if ask {
		if _, err := a.theGroup(); err != nil {
			return nil, err
		}
		if d.ledgers, err = a.openLedgers(ctx); err != nil {
			return nil, err
		}
		for _, l := range d.ledgers {
			if _, ok := l.store.(dedup.Operator); !ok {
				return nil, usage("%s cannot be looked into", l.name)
			}
		}
	}
	if d.client, err = a.kafka(); err != nil {
		return nil, err
	}
	if d.spans, err = spansOf(d.client, topic); err != nil {
		if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return nil, found("there is no topic %s", topic)
		}
		return nil, err
	}
	return d, nil
}

// note says something beside the result.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.stderr, plain(a.redact(fmt.Sprintf(format, args...))))
}

func newDLQList(a *app) *cobra.Command {
	var o dlqFlags
	var chosen filterFlags
	var limit int
	cmd := &cobra.Command{
		Use: "ls", Short: "List dead letters", Args: cobra.NoArgs,
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

func (d *deadLetters) list(ctx context.Context, f letterFilter, limit int) error {
	w, err := d.app.rows("RECORD", "FAILED", "CLASS", "EVENT", "ATTEMPTS", "REOPENED", "ERROR")
	if err != nil {
		return err
	}
	scanned, err := scanSpans(ctx, d.client, f.narrow(d.spans), func(l *foundLetter) (bool, error) {
		if !f.match(l) {
			return true, nil
		}
		r := rowOf(l)
		err := w.add(r, r.Record, r.failed(), cmp.Or(string(r.Class), string(seenForeign)), r.event(), strconv.Itoa(r.Attempts),
			strconv.FormatUint(uint64(r.Generation), 10), shorten(cmp.Or(r.Error, r.Problem), 80))
		return limit <= 0 || w.n < limit, err
	})
	d.app.note("%s: %d of %d records, %d shown", d.topic, scanned, d.size(), w.n)
	return errors.Join(err, w.end())
}

// size is how many records there may be.
func (d *deadLetters) size() (n int64) {
	for _, s := range d.spans {
		n += s.end - s.begin
	}
	return n
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
	cmd.Flags().BoolVar(&payload, "payload", false, "show the value too: it may hold what few should see (G-04)")
	return cmd
}

// letterDetail is all of a letter.
type letterDetail struct {
	letterRow
	First   time.Time     `json:"firstFailure"`
	Key     shownBytes    `json:"kafkaKey"`
	Size    int           `json:"size"`
	Headers []shownHeader `json:"headers"` // as they are in the topic
	Payload *shownBytes   `json:"payload,omitempty"`
}

func (d *deadLetters) show(ctx context.Context, at place, payload bool) error {
	f := letterFilter{at: []place{at}}
	var l *foundLetter
	if _, err := scanSpans(ctx, d.client, f.narrow(d.spans), func(found *foundLetter) (bool, error) {
		l = found
		return false, nil
	}); err != nil {
		return err
	}
	if l == nil {
		return found("%s has no record %s", d.topic, at)
	}
	detail := letterDetail{letterRow: rowOf(l), Key: bytesOf(l.record.Key), Size: len(l.record.Value)}
	if l.letter != nil {
		detail.First = l.letter.FirstFailure
	}
	for _, h := range l.record.Headers {
		detail.Headers = append(detail.Headers, shownHeader{h.Key, bytesOf(h.Value)})
	}
	if payload {
		p := bytesOf(l.record.Value)
		detail.Payload = &p
	}
	return d.app.show(detail, []string{"", ""}, detail.rows())
}

func (t *letterDetail) rows() [][]string {
	size := strconv.Itoa(t.Size) + " bytes"
	if t.Omitted {
		size += ", the record's own value is at its origin"
	}
	rows := [][]string{
		{"record", t.Topic + "/" + t.Record}, {"kafka key", t.Key.String()}, {"value", size},
	}
	if t.Problem != "" {
		rows = append(rows, []string{"problem", t.Problem})
	}
	for _, h := range t.Headers {
		rows = append(rows, []string{h.Key, h.String()})
	}
	if t.Payload != nil {
		rows = append(rows, []string{"payload", t.Payload.String()})
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
	var decided decisions
	cmd := &cobra.Command{
		Use: "plan", Short: "Say what a replay would do", Args: cobra.NoArgs,
		Long: "Asks the ledger about the event of each letter and says what a replay would do. Nothing is changed. Reads the topic\n" +
			"twice: letters of one event that differ are not replayed until one is chosen with --at.",
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
	decided.add(cmd.Flags())
	return cmd
}

func (d *deadLetters) plan(ctx context.Context, f letterFilter, limit int) error {
	w, err := d.app.rows("RECORD", "FAILED", "CLASS", "EVENT", "VERDICT", "REPLAY", "NOTE")
	if err != nil {
		return err
	}
	s, err := d.survey(ctx, f)
	if err != nil {
		return err
	}
	d.warnAboutReaders(s)
	counts := make(map[verdict]int)
	scanned, err := d.eachJudged(ctx, f, s, func(j *judged) (bool, error) {
		counts[j.verdict]++
		r := rowOf(j.foundLetter)
		r.Verdict, r.Action, r.Note = j.verdict, j.action.String(), j.note
		err := w.add(r, r.Record, r.failed(), cmp.Or(string(r.Class), "-"), r.event(), string(r.Verdict), r.Action, shorten(r.Note, 100))
		return limit <= 0 || w.n < limit, err
	})
	d.app.note("%s: %d of %d records, %d letters match, %d shown: %s", d.topic, max(s.scanned, scanned), d.size(), s.matched, w.n, countsText(counts))
	return errors.Join(err, w.end())
}

// judgeBatch is how many letters the ledgers are asked about at a time.
const judgeBatch = 100

// eachJudged reads the topic and gives verdicts to what f chooses, many in one round trip.
func (d *deadLetters) eachJudged(ctx context.Context, f letterFilter, s *survey, yield func(*judged) (bool, error)) (scanned int, err error) {
	var batch []*foundLetter
	flush := func() (bool, error) {
		all, err := d.judge(ctx, s, batch...)
		batch = batch[:0]
		for i := range all {
			if more, err := yield(&all[i]); err != nil || !more {
				return false, err
			}
		}
		return true, err
	}
	more := true
	scanned, err = scanSpans(ctx, d.client, f.narrow(d.spans), func(l *foundLetter) (bool, error) {
		if !f.match(l) {
			return true, nil
		}
		if batch = append(batch, l); len(batch) < judgeBatch {
			return true, nil
		}
		var err error
		more, err = flush()
		return more, err
	})
	if err == nil && more {
		_, err = flush()
	}
	return scanned, err
}
