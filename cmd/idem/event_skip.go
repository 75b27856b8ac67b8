package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/events"
)

func newEventSkipCmd(a *app) *cobra.Command {
	var f eventFlags
	var record recordFlags
	var s skipping
	cmd := &cobra.Command{
		Use:   "skip [<id>]",
		Short: "Give an event up for good, so that others go on",
		Long: "Gives up an event for good: later deliveries are skipped, and a handler that\n" +
			"runs now loses its claim. If the event is deferred in a SQL store, the events of\n" +
			"its key behind it go on.\n" +
			"\n" +
			"An event that was handled is refused, and only leaves its queue. With --type the\n" +
			"command also gives up an event that the store does not know yet.\n" +
			"\n" +
			"Instead of the ID, --topic, --partition and --offset name a record, such as one\n" +
			"of a log line. The command reads the identity of the record as handlers without\n" +
			"options do. If your handler has options for identity, give the same by flags,\n" +
			"else another event would be given up.",
		Example: "  idem event skip order-4711 --type order.created -G billing " +
			"--reason 'ticket 12'\n" +
			"  idem event skip --topic orders --partition 3 --offset 4711 -G billing " +
			"--brokers localhost:9092",
		Args: cobra.ArbitraryArgs, // checked below
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.retention <= 0 {
				return usage("--retention must be positive")
			}
			if err := record.check(&f, args); err != nil {
				return err
			}
			if s.record = record.at(f.topic); s.record == "" {
				return a.eventSkip(cmd.Context(), &f, args[0], s)
			}
			if _, err := a.theScope(); err != nil {
				return err
			}
			topic, at := topicAndRecord(s.record)
			a.about = map[string]any{"topic": topic, "record": at}
			id, err := record.identify(cmd.Context(), a, &f)
			if err != nil {
				return err
			}
			return a.eventSkip(cmd.Context(), &f, id, s)
		},
	}
	f.add(cmd)
	record.add(cmd)
	cmd.Flags().StringVar(&s.reason, "reason", "", "why, for the store and the audit line")
	cmd.Flags().DurationVar(
		&s.retention, "retention", 30*24*time.Hour,
		"how long the store remembers that the event was given up",
	)
	return cmd
}

// skipping has the parts of a skip beside the event.
type skipping struct {
	reason    string
	retention time.Duration
	record    string // the place that names the event; empty with an ID
}

func (a *app) eventSkip(ctx context.Context, f *eventFlags, arg string, s skipping) error {
	e, asked, err := a.target(ctx, f, arg)
	if e == nil && asked.Type != "" && len(a.opened) == 1 && isNotKnown(err) {
		e, err = events.NotYetKnown(&shared(a.opened)[0], asked, f.topic), nil
	}
	next := "later deliveries are skipped"
	if e != nil && events.IsRequest(e.Key) {
		next = "copies of the request get 409 given_up"
	}
	fields := auditOf(e, asked, s.reason)
	if s.record != "" {
		fields["topic"], fields["record"] = topicAndRecord(s.record)
	}
	err = a.audited("event skip", fields, func() error {
		if err != nil {
			return err
		}
		if e.Deferred != nil {
			next = e.Deferred.After()
		}
		if a.dryRun && has(e, isDone) {
			return handledAlready(e, "a real run takes it out of its queue")
		}
		if err := a.confirm("%s\n%s", describe(e), promiseOfSkip(e)); err != nil {
			return err
		}
		err := e.Store.Operator().
			Discard(ctx, e.Key, s.retention, cmp.Or(s.reason, "by the operator's command"))
		handled := errors.Is(err, dedup.ErrSettled)
		if err != nil && !handled {
			return fmt.Errorf("%s: %w", e.Store.Name, err)
		}
		if err := e.TakeOut(ctx); err != nil {
			return err
		}
		if e.Deferred != nil {
			next = e.Deferred.After()
		}
		if handled {
			return handledAlready(e, next)
		}
		return nil
	})
	if unlessDryRun(err) != nil {
		return err
	}
	return a.showResult(e, "skipped", next)
}

// handledAlready refuses to give up an event that was handled. The place of the event in a queue is
// left over: queue describes its end.
func handledAlready(e *events.Event, queue string) error {
	text := fmt.Sprintf("event %q was handled already and cannot be skipped", e.Key.ID)
	if e.Deferred != nil {
		text += "; " + queue
	}
	return found("%s", text)
}
