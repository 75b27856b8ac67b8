package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/groups"
	"github.com/idem-go/idem/internal/kafkalog"
)

// rewindFlags choose the target offsets.
type rewindFlags struct {
	to        string
	before    time.Duration
	topics    []string
	retention time.Duration
}

func newRewindCmd(a *app) *cobra.Command {
	var o rewindFlags
	cmd := &cobra.Command{
		Use: "rewind", Args: cobra.NoArgs,
		Short: "Let a stopped group consume again from an earlier time",
		Long: "Moves the committed offsets of a group back, never forward. Stop the group\n" +
			"first. Events that the store remembers are skipped; events that a store lost in\n" +
			"a failover run again.\n" +
			"\n" +
			"--before-failover 10m goes back to the records of the last 10 minutes. Where the\n" +
			"group was behind, the command goes back to 10 minutes before the last record\n" +
			"that the group consumed. Choose more than the store can have lost, and more than\n" +
			"the time since then. Retry topics of the chosen topics are rewound too.",
		Example: "  idem rewind -G billing --to 2026-01-31T12:00:00Z --topic orders " +
			"--brokers localhost:9092\n" +
			"  idem rewind -G billing --before-failover 10m --store postgres://idem@db/shop",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.rewind(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", timeForms)
	f.DurationVar(&o.before, "before-failover", 0, "how far back, such as 10m")
	f.StringSliceVarP(&o.topics, "topic", "t", nil, "these topics only, with their retry topics")
	f.DurationVar(
		&o.retention, "retention", 0,
		"how long the store remembers, to be warned (Postgres is asked)",
	)
	return cmd
}

// rewindView is the result: it is shown before the question, since a person decides by it.
type rewindView struct {
	dryRunView
	Group      string      `json:"group"`
	Events     int64       `json:"events"` // of all partitions
	Partitions []rewindRow `json:"partitions"`
}

// rewindRow is one partition. Events counts marks of transactions and compacted records too.
type rewindRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"`
	To        int64  `json:"to"`
	Events    int64  `json:"events"` // that are delivered again
	Note      string `json:"note,omitempty"`

	unknown bool // whether the group has consumed records that are lost
}

func (a *app) rewind(ctx context.Context, o rewindFlags) error {
	group, err := a.theGroup()
	if err != nil {
		return err
	}
	if (o.to == "") == (o.before <= 0) {
		return usage("how far? give --to or --before-failover")
	}
	to, err := parseTime("to", cmp.Or(o.to, o.before.String()))
	if err != nil {
		return err
	}
	fields := map[string]any{"group": group, "to_time": to.UTC().Format(time.RFC3339)}
	return a.audited("rewind", fields, func() error {
		return unlessDryRun(a.rewindGroup(ctx, group, to, o, fields))
	})
}

// rewindGroup shows the new offsets, asks, and commits them. fields are those of the audit line.
func (a *app) rewindGroup(
	ctx context.Context, group string, to time.Time, o rewindFlags, fields map[string]any,
) error {
	client, err := a.kafka(ctx)
	if err != nil {
		return err
	}
	if err := refuseMembers(client, group); err != nil {
		return err
	}
	rows, err := a.rewindRows(ctx, client, group, to, o)
	if err != nil {
		return err
	}
	a.warnAboutSources(group, rows)
	events := int64(0)
	for _, r := range rows {
		events += r.Events
	}
	fields["events"], fields["partitions"] = events, rows
	view := rewindView{dryRunView{a.dryRun}, group, events, rows}
	if err := a.showRewind(&view); err != nil {
		return err
	}
	if err := refuseUnknown(rows); err != nil {
		return err
	}
	if events == 0 {
		a.note("group %s: no offsets to rewind", group)
		return nil
	}
	if err := a.warnAboutHorizon(ctx, client, rows, o.retention); err != nil {
		return err
	}
	if err := a.confirm(
		"group %s: %d events are delivered again.", group, events,
	); err != nil {
		return err
	}
	if err := refuseMoved(client, group, rows); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("no offset was set: %w", err)
	}
	err = setOffsets(client, group, rows)
	if errors.Is(err, errUnanswered) {
		fields["unknown"] = true
	}
	return err
}

// errUnanswered means that no broker has told whether the offsets were set.
var errUnanswered = errors.New("the offsets may have been set: see idem lag")

// refusal reports whether err is the answer of a broker that did not set the offset.
func refusal(err error) bool {
	var code sarama.KError
	return errors.As(err, &code) && code != sarama.ErrRequestTimedOut
}

// refuseUnknown refuses to leave a partition where it is, as if the group had lost no events there.
func refuseUnknown(rows []rewindRow) error {
	var names []string
	for _, r := range rows {
		if r.unknown {
			names = append(names, fmt.Sprintf("%s/%d", r.Topic, r.Partition))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return found(
		"--before-failover: the time of the last consumed record is not known for %s: "+
			"give --to with an earlier time", strings.Join(names, ", "),
	)
}

// refuseMoved refuses if another caller has moved the offsets since the person saw them: to commit
// the new ones could move the group forward.
func refuseMoved(client sarama.Client, group string, rows []rewindRow) error {
	now, err := groups.Committed(client, group)
	if err != nil {
		return err
	}
	var names []string
	for _, r := range rows {
		if at, ok := now[r.Topic][r.Partition]; !ok || at != r.Committed {
			names = append(names, fmt.Sprintf("%s/%d", r.Topic, r.Partition))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return found(
		"the committed offsets of %s have changed since the question was asked, "+
			"no offset was set: repeat the command", strings.Join(names, ", "),
	)
}

// refuseMembers refuses a running group, because it would overwrite the offsets.
func refuseMembers(client sarama.Client, group string) error {
	members, err := groups.Members(client, group)
	if err != nil {
		return err
	}
	if len(members) == 0 {
		return nil
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = plain(m.String())
	}
	return found(
		"group %s has %d members, stop them first: %s", group, len(members),
		strings.Join(names, ", "),
	)
}

// rewindRows are the partitions that the group has offsets on, and where they would go.
func (a *app) rewindRows(
	ctx context.Context, client sarama.Client, group string, to time.Time, o rewindFlags,
) (rows []rewindRow, err error) {
	committed, err := groups.Committed(client, group)
	if err != nil {
		return nil, err
	}
	if len(committed) == 0 {
		return nil, found("group %s has no committed offsets", group)
	}
	total := 0
	for topic, partitions := range committed {
		if o.wants(topic, group) {
			total += len(partitions)
		}
	}
	seen := a.progress("partitions", int64(total))
	defer seen.end()
	for _, topic := range slices.Sorted(maps.Keys(committed)) {
		if !o.wants(topic, group) {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(committed[topic])) {
			row, err := rewindRowOf(ctx, client, topic, id, committed[topic][id], to, o.before)
			if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				row.Note, err = "the partition does not exist", nil
			}
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
			seen.add(1, nil)
		}
	}
	for _, topic := range o.topics {
		if committed[topic] == nil {
			return nil, found(
				"group %s has no committed offsets on %s, or this user may not describe the topic",
				group,
				topic,
			)
		}
	}
	return rows, nil
}

// warnAboutSources warns about topics that are not rewound although their retry topics are. Kafka
// hides the offsets of a group on topics that the user must not describe.
func (a *app) warnAboutSources(group string, rows []rewindRow) {
	covered := make(map[string]bool)
	for _, r := range rows {
		covered[r.Topic] = true
	}
	for _, r := range rows {
		source, _, isRetry := strings.Cut(r.Topic, "."+group+".retry")
		if isRetry && groups.IsRetryOf(r.Topic, source, group) && !covered[source] {
			covered[source] = true
			a.note(
				"warning: topic %s is not rewound: the group has no committed offsets there, "+
					"or this user may not describe the topic", source,
			)
		}
	}
}

func (o *rewindFlags) wants(topic, group string) bool {
	return len(o.topics) == 0 ||
		slices.ContainsFunc(
			o.topics,
			func(t string) bool { return t == topic || groups.IsRetryOf(topic, t, group) },
		)
}

func rewindRowOf(
	ctx context.Context, client sarama.Client, topic string, id int32, committed int64,
	to time.Time, before time.Duration,
) (rewindRow, error) {
	row := rewindRow{Topic: topic, Partition: id, Committed: committed, To: committed}
	begin, end, err := kafkalog.Bounds(client, topic, id)
	if err != nil {
		return row, err
	}
	if committed < begin || committed > end {
		row.Note = fmt.Sprintf("the committed offset is not in the log (%d to %d)", begin, end)
	}
	last, searched, err := lastTime(
		ctx, client,
		kafkalog.Span{Topic: topic, Partition: id, Begin: begin, End: min(committed, end)},
	)
	if err != nil {
		return row, err
	}
	goal := aim(last, searched, to, before)
	if goal.note != "" {
		row.Note = goal.note
	}
	if row.unknown = goal.unknown; row.unknown {
		return row, nil
	}
	to = goal.to
	at, err := client.GetOffset(
		topic, id, max(to.UnixMilli(), 0),
	) // negative times have another meaning in Kafka
	if err != nil {
		return row, fmt.Errorf("offset of %s/%d at %s: %w", topic, id, to, err)
	}
	if at >= 0 && at < committed { // -1: no record is that young
		row.To = at
		row.Events = min(committed, end) - min(at, end)
	}
	if row.To == begin && row.Events > 0 && begin > 0 {
		row.Note = "the log does not reach back further"
	}
	return row, nil
}

// goal is the time to go back to, in one partition.
type goal struct {
	to      time.Time
	note    string
	unknown bool // the group may have consumed records before to shortly before the failover
}

// aim decides how far back a partition goes. last is the time of the last consumed record, nil
// without one. searched is false if such a record may be further back than the command looked. With
// before, a group that was behind goes back from its last record.
func aim(last *time.Time, searched bool, to time.Time, before time.Duration) goal {
	behind := last != nil && last.Before(to)
	switch {
	case !searched && before > 0:
		return goal{unknown: true, note: fmt.Sprintf(
			"the time of the last consumed record is not known: no record can be read in the %d "+
				"offsets below the committed one", mostOffsets,
		)}
	case behind && before > 0:
		to = last.Add(-before)
		return goal{to: to, note: fmt.Sprintf(
			"from %s on: the last consumed record is older than %s", to.UTC().Format(time.RFC3339),
			before,
		)}
	case behind:
		return goal{to: to, note: "all that was consumed is older, last from " +
			last.UTC().Format(time.RFC3339)}
	}
	return goal{to: to}
}

func (a *app) showRewind(v *rewindView) error {
	cells := make([][]string, len(v.Partitions))
	for i, r := range v.Partitions {
		cells[i] = []string{
			r.Topic, strconv.Itoa(int(r.Partition)), strconv.FormatInt(r.Committed, 10),
			strconv.FormatInt(r.To, 10), strconv.FormatInt(r.Events, 10), r.Note,
		}
	}
	return a.show(v, []string{"TOPIC", "PARTITION", "COMMITTED", "TO", "EVENTS", "NOTE"}, cells)
}

// setOffsets commits in the name of the group. A broker refuses that if members came meanwhile. The
// error matches errUnanswered if offsets may have been set all the same.
func setOffsets(client sarama.Client, group string, rows []rewindRow) error {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return err
	}
	offsets := make(map[string]map[int32]sarama.OffsetAndMetadata)
	for _, r := range rows {
		if r.To >= r.Committed {
			continue
		}
		if offsets[r.Topic] == nil {
			offsets[r.Topic] = make(map[int32]sarama.OffsetAndMetadata)
		}
		offsets[r.Topic][r.Partition] = sarama.OffsetAndMetadata{Offset: r.To, LeaderEpoch: -1}
	}
	response, err := admin.AlterConsumerGroupOffsets(group, offsets, nil)
	if err != nil && !refusal(err) {
		return fmt.Errorf("%w: %w", errUnanswered, groups.Error(group, err))
	}
	if err != nil {
		return groups.Error(group, err)
	}
	var errs []error
	unanswered := false
	for topic, partitions := range response.Errors {
		for id, code := range partitions {
			if code != sarama.ErrNoError {
				errs = append(errs, fmt.Errorf("%s/%d: %w", topic, id, code))
				unanswered = unanswered || !refusal(code)
			}
		}
	}
	if unanswered {
		errs = append(errs, errUnanswered)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("commit for group %s (did a member come?): %w", group, err)
	}
	return nil
}

// warnAboutHorizon warns about events that are older than the memory of the store (rule 8). The
// policy WhenTooOld of each handler decides about them.
func (a *app) warnAboutHorizon(
	ctx context.Context, client sarama.Client, rows []rewindRow, retention time.Duration,
) error {
	var first *time.Time
	for _, r := range rows {
		if r.Events == 0 {
			continue
		}
		t, err := firstTime(
			ctx, client,
			kafkalog.Span{Topic: r.Topic, Partition: r.Partition, Begin: r.To, End: r.Committed},
		)
		if err != nil {
			return err
		}
		if t != nil && (first == nil || t.Before(*first)) {
			first = t
		}
	}
	if first == nil {
		return nil
	}
	from := first.Format(time.RFC3339)
	if limit := time.Now().Add(-retention); retention > 0 && first.Before(limit) {
		a.note(
			"warning: events from %s on, but the store remembers since %s only: "+
				"older events meet the policy of their handler (WhenTooOld)",
			from, limit.UTC().Format(time.RFC3339),
		)
	}
	if len(a.stores) == 0 {
		a.note(
			"warning: without --store: cannot check whether the store remembers events from %s on",
			from,
		)
		return nil
	}
	return a.warnOfStores(ctx, *first, retention)
}

func (a *app) warnOfStores(ctx context.Context, first time.Time, retention time.Duration) error {
	scope, err := a.theScope()
	if err != nil {
		return err
	}
	stores, err := a.openStores(ctx)
	if err != nil {
		return err
	}
	from := first.Format(time.RFC3339)
	for _, l := range stores {
		switch horizon, err := horizonOf(ctx, l, scope); {
		case err != nil:
			a.note("warning: %s: cannot read how far the store remembers: %v", l.name, err)
		case l.pool == nil && retention == 0:
			a.note(
				"warning: %s: give --retention of its handlers to check "+
					"whether the store remembers events from %s on", l.name, from,
			)
		case first.Before(horizon):
			a.note(
				"warning: %s: events from %s on, but the store remembers since %s only: "+
					"older events meet the policy of their handler (WhenTooOld)",
				l.name, from, horizon.UTC().Format(time.RFC3339),
			)
		}
	}
	return nil
}

// horizonOf returns the time since which a store in Postgres remembers every event of a scope. The
// time is zero if no event was deleted yet, or if the store records no horizon.
func horizonOf(ctx context.Context, l *openedStore, scope string) (time.Time, error) {
	if l.pool == nil {
		return time.Time{}, nil
	}
	table := pgx.Identifier{"idem_horizons"}
	if l.state.schema != "" {
		table = pgx.Identifier{l.state.schema, "idem_horizons"}
	}
	var before time.Time
	err := l.pool.QueryRow(ctx, "SELECT before FROM "+table.Sanitize()+" WHERE scope = $1", scope).
		Scan(&before)
	var missing *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return time.Time{}, nil
	case errors.As(err, &missing) && missing.Code == "42P01":
		return time.Time{}, errors.New("no table idem_horizons in the search path")
	}
	return before, err
}
