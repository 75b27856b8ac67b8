package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/events"
)

func newEventReleaseCmd(a *app) *cobra.Command {
	var f eventFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "release <id>",
		Short: "Delete the records of an event, so that its next delivery runs",
		Long: "Deletes all records of an event, so that its next delivery runs like the first\n" +
			"one. The command delivers no copy. An event that a live worker holds is refused.\n" +
			"An effect that happened before happens again. For a dead event prefer idem dlq\n" +
			"replay, which also publishes a copy.",
		Example: "  idem event release order-4711 -G billing " +
			"--store postgres://idem@db/shop --reason 'ticket 12'\n" +
			"  idem event release order-4711 --type order.created --topic orders -G billing --yes",
		Args: one("the event's ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eventRelease(cmd.Context(), &f, args[0], reason)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit line")
	return cmd
}

func (a *app) eventRelease(ctx context.Context, f *eventFlags, arg, reason string) error {
	e, asked, err := a.target(ctx, f, arg)
	err = a.audited("event release", auditOf(e, asked, reason), func() error {
		if err != nil {
			return err
		}
		if a.dryRun && has(e, isLive) {
			return beingHandled(e)
		}
		if err := a.confirm(
			"%s\nThe event will be forgotten: its next delivery runs.%s",
			describe(e), warnRelease(e),
		); err != nil {
			return err
		}
		err := e.Store.Operator().Forget(ctx, e.Key)
		unknown := errors.Is(err, dedup.ErrNotFound)
		switch {
		case errors.Is(err, dedup.ErrHeld):
			return beingHandled(e)
		case err != nil && !unknown:
			return fmt.Errorf("%s: %w", e.Store.Name, err)
		}
		if err := e.Unblock(ctx); err != nil {
			return err
		}
		if unknown && e.Deferred == nil {
			return found("%s", notKnown(e.Key, true))
		}
		return nil
	})
	if unlessDryRun(err) != nil {
		return err
	}
	return a.showResult(e, "released", howDelivered(e, a.group))
}

// beingHandled refuses to forget an event with a live claim.
func beingHandled(e *events.Event) error {
	return found("event %q is being handled, the command changed no record: "+
		"wait until the lease ends (idem event get shows the time)", e.Key.ID)
}
