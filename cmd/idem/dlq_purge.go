package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/IBM/sarama"
	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/kafkalog"
)

func newDLQPurge(a *app) *cobra.Command {
	var o dlqFlags
	var conflicts bool
	cmd := &cobra.Command{
		Use: "purge", Short: "Delete dead letters whose events are settled", Args: cobra.NoArgs,
		Long: "Deletes, in each partition of the dead-letter topic, the dead letters before the\n" +
			"first unsettled one. A dead letter is settled if its event was handled or\n" +
			"discarded (idem event skip, idem dlq discard), or if it has no identity and was\n" +
			"replayed. Kafka deletes from the beginning only.",
		Example: "  idem dlq purge --topic orders -G billing --store postgres://idem@db/shop\n" +
			"  idem dlq purge --topic orders -G billing --conflicts --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.openDLQ(cmd.Context(), &o, true)
			if err != nil {
				return err
			}
			return d.purge(cmd.Context(), conflicts)
		},
	}
	o.add(cmd.Flags())
	cmd.Flags().BoolVar(
		&conflicts, "conflicts", false,
		"also dead letters whose value differs from the handled event of the same ID",
	)
	return cmd
}

// purgeView is the result: it is shown before the question, since a person decides by it.
type purgeView struct {
	dryRunView
	Topic       string     `json:"topic"`
	Group       string     `json:"group"`
	DeadLetters int        `json:"dead_letters"` // of all partitions
	Partitions  []purgeRow `json:"partitions"`
}

// purgeRow is how far a partition may be deleted.
type purgeRow struct {
	Partition   int32  `json:"partition"`
	From        int64  `json:"from"`
	To          int64  `json:"to"` // not deleted itself
	End         int64  `json:"end"`
	DeadLetters int    `json:"dead_letters"`         // that are deleted
	StoppedBy   string `json:"stopped_by,omitempty"` // the dead letter at To, and its verdict
}

func (d *deadLetters) purge(ctx context.Context, conflicts bool) error {
	rows := []purgeRow{}
	deleted := 0
	twins, err := d.surveyAll(ctx, deadletters.Filter{})
	if errors.Is(err, deadletters.ErrTooMany) {
		d.app.note(
			"warning: more than %d events: dead letters of one event with different values are "+
				"not looked for",
			deadletters.MaxEvents,
		)
		twins, err = nil, nil
	}
	if err != nil {
		return err
	}
	to := make(map[int32]int64)
	seen := d.app.progress("records", d.Size())
	defer seen.end()
	for _, s := range d.Spans() {
		row, err := d.purgeable(ctx, s, twins, conflicts, seen)
		if err != nil {
			return err
		}
		rows = append(rows, row)
		deleted += row.DeadLetters
		if row.To > row.From {
			to[s.Partition] = row.To
		}
	}
	seen.end()
	view := purgeView{dryRunView{d.app.dryRun}, d.Topic, d.Group, deleted, rows}
	if err := d.showPurge(&view); err != nil {
		return err
	}
	if len(to) == 0 {
		d.app.note("%s: no dead letters to delete", d.Topic)
		return nil
	}
	audit := map[string]any{
		"topic": d.Topic, "group": d.Group, "dead_letters": deleted, "offsets": to,
	}
	if err := d.app.confirmed(
		"dlq purge", audit, "%d dead letters of %s are deleted for good.", deleted, d.Topic,
	); err != nil {
		return unlessDryRun(err)
	}
	err = d.deleteTo(to)
	audit["outcome"] = deadletters.OutcomeOf(ctx, err)
	if errors.Is(err, errMayBeDeleted) {
		audit["unknown"] = true
	}
	d.app.audit("dlq purge", audit)
	return err
}

// purgeable finds the first record of a partition that must stay.
func (d *deadLetters) purgeable(
	ctx context.Context, s kafkalog.Span, twins *deadletters.Survey, conflicts bool, seen *progress,
) (purgeRow, error) {
	row := purgeRow{Partition: s.Partition, From: s.Begin, To: s.Begin, End: s.End}
	_, err := d.Only(s).
		EachJudged(ctx, deadletters.Filter{}, twins, d.decisions, func(
			j *deadletters.Judged,
		) (bool, error) {
			seen.add(1, nil)
			if !j.Settled(conflicts) {
				row.To, row.StoppedBy = j.Offset, j.Place.String()+": "+string(j.Verdict)
				if j.Note != "" {
					row.StoppedBy += " (" + j.Note + ")"
				}
				return false, nil
			}
			row.To = j.Offset + 1
			row.DeadLetters++
			return true, nil
		})
	return row, err
}

func (d *deadLetters) showPurge(v *purgeView) error {
	cells := make([][]string, len(v.Partitions))
	for i, r := range v.Partitions {
		cells[i] = []string{
			strconv.Itoa(int(r.Partition)), strconv.FormatInt(r.From, 10),
			strconv.FormatInt(r.To, 10), strconv.FormatInt(r.End, 10),
			strconv.Itoa(r.DeadLetters), brief(r.StoppedBy, 120),
		}
	}
	return d.app.show(
		v, []string{"PARTITION", "FROM", "TO", "END", "DEAD LETTERS", "STOPPED BY"}, cells,
	)
}

func (d *deadLetters) deleteTo(to map[int32]int64) error {
	admin, err := sarama.NewClusterAdminFromClient(d.Client) // closing it would close the client
	if err != nil {
		return err
	}
	return purgeError(d.Topic, admin.DeleteRecords(d.Topic, to))
}

// errMayBeDeleted means that no broker has told about a partition whether its records were deleted.
var errMayBeDeleted = errors.New(
	"some records may have been deleted: repeat the command to see the others",
)

// purgeError explains an error of DeleteRecords. A broker refuses all partitions of a topic for its
// policy or the rights of the caller. After any other error, some partitions may be done.
func purgeError(topic string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sarama.ErrPolicyViolation):
		return fmt.Errorf("delete records of %s: cleanup.policy must include delete: %w", topic, err)
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return fmt.Errorf("delete records of %s: %w", topic, err)
	}
	return fmt.Errorf("delete records of %s: %w (%w)", topic, err, errMayBeDeleted)
}
