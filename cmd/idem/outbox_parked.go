package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// parkedRowView is a row of an outbox that a person must decide about.
type parkedRowView struct {
	Seq     int64                `json:"seq"`
	Parked  time.Time            `json:"parked"`
	Added   time.Time            `json:"added"`
	Topic   string               `json:"topic"`
	Key     deadletters.Bytes    `json:"kafka_key"`
	Type    string               `json:"type"`
	ID      string               `json:"event_id"`
	Behind  int64                `json:"behind"` // rows of its aggregate that are blocked
	Reason  string               `json:"reason"`
	Size    int                  `json:"size"` // of the payload
	Payload *deadletters.Bytes   `json:"payload,omitempty"`
	Headers []deadletters.Header `json:"headers,omitempty"`
}

func newOutboxParkedCmd(a *app) *cobra.Command {
	var o outboxFlag
	var payload bool
	var limit int
	cmd := &cobra.Command{
		Use:   "parked",
		Short: "List rows that will never be published as they are, the oldest first",
		Example: "  idem outbox parked --outbox postgres://idem@db/shop\n" +
			"  idem outbox parked --limit 10 --payload -o json",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.outboxParked(cmd, &o, payload, limit)
		},
	}
	o.flags(a, cmd.Flags())
	cmd.Flags().BoolVar(
		&payload, "payload", false, "show payloads and headers too, which not everybody may see",
	)
	cmd.Flags().IntVar(&limit, "limit", 100, "rows at most, up to 10000")
	return cmd
}

func (a *app) outboxParked(cmd *cobra.Command, o *outboxFlag, payload bool, limit int) error {
	if err := checkLimit(limit, 1, 10_000); err != nil {
		return err
	}
	b, err := a.openOutbox(cmd, o, poolUse{"idem-cli", 2})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askWait)
	defer cancel()
	all, err := b.box.Parked(ctx, limit)
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	header := []string{
		"SEQ", "PARKED", "TOPIC", "KEY", "TYPE", "EVENT", "BYTES", "BEHIND", "REASON",
	}
	views, rows := []parkedRowView{}, [][]string{}
	for i := range all {
		v := viewOfParked(&all[i], payload)
		views = append(views, v)
		rows = append(rows, []string{
			strconv.FormatInt(v.Seq, 10), stampOf(&v.Parked), v.Topic,
			shorten(bytesText(v.Key), 60), v.Type, v.ID, strconv.Itoa(v.Size),
			strconv.FormatInt(v.Behind, 10), brief(a.redact(v.Reason), 200),
		})
		if payload {
			for _, row := range bytesRows("payload", *v.Payload) {
				rows = append(rows, append([]string{""}, row...))
			}
		}
	}
	if len(all) == limit {
		fmt.Fprintf(a.stderr, "idem: there may be more than these %d: --limit\n", limit)
	}
	return a.show(views, header, rows)
}

func viewOfParked(p *pgoutbox.Parked, payload bool) parkedRowView {
	e := &p.Row.Entry
	key := deadletters.BytesOf([]byte(e.Key))
	if e.Key == "" {
		key = deadletters.Bytes{Null: true}
	}
	v := parkedRowView{
		Seq: p.Row.Seq, Parked: p.At.UTC(), Added: p.Row.Added.UTC(),
		Topic: e.Topic, Key: key, Type: e.Type, ID: e.ID, Behind: p.Behind,
		Reason: p.Error, Size: len(e.Payload),
	}
	if payload {
		shown := deadletters.BytesOf(e.Payload)
		v.Payload = &shown
		for _, h := range e.Headers {
			v.Headers = append(
				v.Headers, deadletters.Header{Key: h.Key, Bytes: deadletters.BytesOf(h.Value)},
			)
		}
	}
	return v
}

func newOutboxRetryCmd(a *app) *cobra.Command {
	return newOutboxVerb(a, &outboxVerb{
		name: "retry", short: "Publish parked rows again, and the rows that they block",
		question: "These rows will be published again, and then the rows that they block.",
		done:     "to be published again", do: (*pgoutbox.Outbox).Retry,
	})
}

func newOutboxSkipCmd(a *app) *cobra.Command {
	return newOutboxVerb(a, &outboxVerb{
		name: "skip", short: "Delete parked rows, and publish the rows that they block",
		question: "These rows will be deleted: no consumer will get these events. " +
			"The rows that they block are published.",
		done: "dropped", do: (*pgoutbox.Outbox).Skip,
	})
}

// outboxVerb is an action on a parked row.
type outboxVerb struct {
	name, short, question, done string
	do                          func(*pgoutbox.Outbox, context.Context, outbox.RowID) error
}

func newOutboxVerb(a *app, verb *outboxVerb) *cobra.Command {
	var o outboxFlag
	var reason string
	cmd := &cobra.Command{
		Use:   verb.name + " SEQ[:EVENT]...",
		Short: verb.short,
		Long: verb.short + ". Name rows by SEQ and EVENT, see idem outbox parked. If one\n" +
			"row is not parked, or is another event, no row is changed. Without :EVENT the\n" +
			"question shows the event, but -y takes any: a fail-over may give SEQ to another one.",
		Example: "  idem outbox " + verb.name +
			" 4711:order-12 4712:order-13 --outbox postgres://idem@db/shop --reason 'ticket 12'",
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := parseRows(args)
			if err != nil {
				return err
			}
			return a.outboxVerb(cmd, &o, verb, rows, reason)
		},
	}
	o.flags(a, cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit line")
	return cmd
}

// maxArgs limits the rows of one command, because a person has looked at each of them.
const maxArgs = 1000

// parseRows returns the rows of arguments SEQ or SEQ:EVENT, by number and event ID. The event ID is
// empty where the argument has none.
func parseRows(args []string) ([]outbox.RowID, error) {
	if len(args) == 0 || len(args) > maxArgs {
		return nil, usage(
			"no rows: give SEQ:EVENT of 1 to %d rows, see idem outbox parked", maxArgs,
		)
	}
	rows := make([]outbox.RowID, 0, len(args))
	for _, arg := range args {
		number, id, named := strings.Cut(arg, ":")
		seq, err := strconv.ParseInt(number, 10, 64)
		if err != nil || seq < 1 || named && id == "" {
			return nil, usage(
				"%q is no row: give SEQ, a positive number, or SEQ:EVENT with the event ID", arg,
			)
		}
		rows = append(rows, outbox.RowID{Seq: seq, EventID: id})
	}
	slices.SortFunc(rows, func(a, b outbox.RowID) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.EventID, b.EventID))
	})
	return slices.Compact(rows), nil
}

// parkedName is enough of a parked row for questions and audit lines.
type parkedName struct {
	seq            int64
	topic, typ, id string
	key            []byte
}

func (p *parkedName) String() string {
	key := ""
	if p.key != nil {
		key = " of key " + strconv.Quote(shorten(bytesText(deadletters.BytesOf(p.key)), 60))
	}
	return fmt.Sprintf("%d: event %q of type %q for topic %q%s", p.seq, p.id, p.typ, p.topic, key)
}

func (b *openedOutbox) names(ctx context.Context, seqs []int64) ([]parkedName, error) {
	rows, err := b.pool.Query(
		ctx,
		"SELECT seq, topic, event_type, event_id, key FROM "+b.qualified("idem_outbox")+
			" WHERE seq = ANY ($1) AND state = 2 ORDER BY seq",
		seqs,
	)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p parkedName, err error) {
		err = row.Scan(&p.seq, &p.topic, &p.typ, &p.id, &p.key)
		return p, err
	})
}

func (a *app) outboxVerb(
	cmd *cobra.Command, o *outboxFlag, verb *outboxVerb, rows []outbox.RowID, reason string,
) error {
	b, err := a.openOutbox(cmd, o, poolUse{"idem-cli", 2})
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	action := "outbox " + verb.name
	var names []parkedName
	seqs, ids := seqsOf(rows), []string{}
	fields := map[string]any{"outbox": b.name, "seqs": seqs}
	if reason != "" {
		fields["reason"] = reason
	}
	err = a.audited(action, fields, func() error {
		var err error
		if names, err = b.names(ctx, seqs); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		if err := allParked(rows, names); err != nil {
			return err
		}
		text := fmt.Sprintf("Parked in the outbox of %s:", b.name)
		for i := range names {
			ids = append(ids, names[i].id)
			text += "\n  " + names[i].String()
		}
		fields["event_ids"] = ids
		if err := a.confirm("%s\n%s", text, verb.question); err != nil {
			return err
		}
		return b.each(ctx, verb, names, fields)
	})
	if unlessDryRun(err) != nil {
		return err
	}
	var lines [][]string
	for i := range names {
		lines = append(lines, []string{verb.done, names[i].String()})
	}
	return a.show(outboxResult{dryRunView{a.dryRun}, b.name, seqs, ids, verb.done}, nil, lines)
}

// outboxResult is the result of a verb on parked rows.
type outboxResult struct {
	dryRunView
	Outbox   string   `json:"outbox"`
	Seqs     []int64  `json:"seqs"`
	EventIDs []string `json:"event_ids"` // in the order of Seqs
	Result   string   `json:"result"`
}

// seqsOf returns the numbers of rows, which are in ascending order, each number once.
func seqsOf(rows []outbox.RowID) []int64 {
	seqs := make([]int64, len(rows))
	for i, r := range rows {
		seqs[i] = r.Seq
	}
	return slices.Compact(seqs)
}

// allParked returns an error unless each row is in names, with its event ID if it has one.
func allParked(rows []outbox.RowID, names []parkedName) error {
	var not, others []string
	for _, r := range rows {
		at := slices.IndexFunc(names, func(p parkedName) bool { return p.seq == r.Seq })
		switch {
		case at < 0:
			not = append(not, strconv.FormatInt(r.Seq, 10))
		case r.EventID != "" && r.EventID != names[at].id:
			others = append(others, fmt.Sprintf("%d is event %q, not %q", r.Seq, names[at].id, r.EventID))
		}
	}
	var problems []string
	if len(not) > 0 {
		problems = append(problems, "not parked: "+strings.Join(not, ", "))
	}
	if len(others) > 0 {
		problems = append(problems, "another event: "+strings.Join(others, ", "))
	}
	if len(problems) > 0 {
		return found("%s; no row was changed", strings.Join(problems, "; "))
	}
	return nil
}

// each acts on the rows one after the other. The audit line has the rows that were finished, and
// the row of a call that failed: its commit may have happened without an answer.
func (b *openedOutbox) each(
	ctx context.Context, verb *outboxVerb, names []parkedName, fields map[string]any,
) error {
	acted := []int64{}
	defer func() { fields["acted"] = acted }()
	for i := range names {
		seq := names[i].seq
		err := b.act(ctx, verb, outbox.RowID{Seq: seq, EventID: names[i].id})
		switch {
		case errors.Is(err, pgoutbox.ErrNotParked):
			return found(
				"event %q in row %d is no longer parked: somebody else has acted, or a fail-over "+
					"gave the number to another event; done before: %v", names[i].id, seq, acted,
			)
		case err != nil:
			fields["unknown"] = seq
			return fmt.Errorf(
				"%s: row %d may have been changed: see idem outbox parked: %w; done before: %v",
				b.name, seq, err, acted,
			)
		}
		acted = append(acted, seq)
	}
	return nil
}

// act does the verb on a row, within the time of a question.
func (b *openedOutbox) act(ctx context.Context, verb *outboxVerb, row outbox.RowID) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	return verb.do(b.box, ctx, row)
}
