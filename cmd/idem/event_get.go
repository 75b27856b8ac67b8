package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/events"
)

func newEventGetCmd(a *app) *cobra.Command {
	var f eventFlags
	var letters bool
	cmd := &cobra.Command{
		Use:   "get <id>",
		Short: "Show an event",
		Long: "Prints the records of an event in the stores: state, times, handler, failures,\n" +
			"origin and the next step. With --dead-letters also its dead letters; the command\n" +
			"then reads the dead-letter topics from end to end.",
		Example: "  idem event get order-4711 -G billing --store postgres://idem@db/shop\n" +
			"  idem event get A234-1234-1234 --source /shop/orders -G billing " +
			"--dead-letters --brokers localhost:9092",
		Args: one("the event's ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eventGet(cmd.Context(), &f, args[0], letters)
		},
	}
	f.add(cmd)
	cmd.Flags().
		BoolVar(&letters, "dead-letters", false, "also search its dead letters (with --brokers "+
			"and --group)")
	return cmd
}

func (a *app) eventGet(ctx context.Context, f *eventFlags, arg string, letters bool) error {
	if _, err := a.theScope(); err != nil {
		return err
	}
	if letters {
		if _, err := a.theGroup(); err != nil {
			return err
		}
	}
	stores, err := a.openStores(ctx)
	if err != nil {
		return err
	}
	all, asked, err := a.find(ctx, stores, f, arg)
	if err != nil {
		return err
	}
	report := eventReport{Events: []events.View{}}
	for _, e := range all {
		report.Events = append(report.Events, e.Views()...)
	}
	var unread error
	if letters {
		report.DeadLetters, unread = a.deadLettersOf(ctx, asked)
	}
	if err := a.show(report, nil, report.rows()); err != nil || unread != nil {
		return cmp.Or(unread, err)
	}
	if len(all) == 0 {
		return found("%s", notKnown(asked.Key(), f.looksDeferred()))
	}
	return nil
}

// deadLettersOf returns nil with an error: the answer of the stores does not depend on Kafka.
func (a *app) deadLettersOf(
	ctx context.Context, q events.Query,
) (*events.DeadLettersAt, error) {
	client, err := a.kafka(ctx)
	if err != nil {
		return nil, err
	}
	found, err := events.DeadLetters(ctx, client, a.group, q)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// eventReport is the output of event get.
type eventReport struct {
	Events      []events.View         `json:"events"`
	DeadLetters *events.DeadLettersAt `json:"dead_letters,omitempty"`
}

// rows has the fields of each event one below the other: there are too many for a line.
func (r *eventReport) rows() (rows [][]string) {
	for i := range r.Events {
		if i > 0 {
			rows = append(rows, nil)
		}
		rows = append(rows, viewRows(&r.Events[i])...)
	}
	return append(rows, deadLetterRows(r.DeadLetters)...)
}

func deadLetterRows(l *events.DeadLettersAt) [][]string {
	if l == nil {
		return nil
	}
	rows := [][]string{
		nil,
		{"DEAD LETTERS", fmt.Sprintf(
			"%d found among %d records of %s, all of which were read",
			len(l.DeadLetters),
			l.Scanned,
			cmp.Or(
				strings.Join(l.Topics, ", "),
				"no dead-letter topic of the group that this user may describe",
			),
		)},
	}
	if l.Cut {
		rows[1][1] = fmt.Sprintf(
			"the first %d, found among %d records; there are more", len(l.DeadLetters), l.Scanned,
		)
	}
	for _, x := range l.DeadLetters {
		rows = append(rows, []string{
			fmt.Sprintf("%s/%d/%d", x.Topic, x.Partition, x.Offset),
			fmt.Sprintf(
				"%s after %d attempts%s: %s", x.Class, x.Attempts, at(", last ", x.Last),
				oneLine(x.Error),
			),
		})
	}
	return rows
}
