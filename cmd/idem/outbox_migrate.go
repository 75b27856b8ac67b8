package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/outboxview"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// This file is about the verbs of idem migrate for the tables of an outbox.

const layoutOutbox = "outbox"

func refuseLayout(layout string) error {
	if layout != "" {
		return usage("--layout is for stores: an outbox has one layout")
	}
	return nil
}

func (a *app) migrateOutboxPrint(layout string) error {
	if err := refuseLayout(layout); err != nil {
		return err
	}
	fmt.Fprint(a.stdout, pgoutbox.Schema())
	return nil
}

func (a *app) openForMigration(cmd *cobra.Command, layout string) (*openedOutbox, error) {
	if err := refuseLayout(layout); err != nil {
		return nil, err
	}
	return a.openOutbox(cmd, &outboxFlag{}, poolUse{"idem-cli", 2})
}

func (a *app) migrateOutboxUp(cmd *cobra.Command, layout string) error {
	b, err := a.openForMigration(cmd, layout)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	fields := map[string]any{"outbox": b.name}
	err = a.audited("migrate up", fields, func() error {
		before, err := outboxview.Find(ctx, b.pool, b.schema)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		fields["version_before"] = before.Version
		if err := pgoutbox.Migrate(ctx, b.pool, b.storeOptions()...); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	v := b.status(ctx)
	return a.show([]tablesView{v}, tablesHeader, v.lines())
}

func (a *app) migrateOutboxStatus(cmd *cobra.Command, layout string) error {
	b, err := a.openForMigration(cmd, layout)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askWait)
	defer cancel()
	v := b.status(ctx)
	v.Problem = a.redact(v.Problem)
	if err := a.show([]tablesView{v}, tablesHeader, v.lines()); err != nil {
		return err
	}
	switch v.State {
	case "ok":
		return nil
	case "unavailable":
		return fmt.Errorf("not to be used now: %s", b.name)
	}
	return found("must not be used in this state: %s", b.name)
}

// status is a line of migrate status for an outbox.
func (b *openedOutbox) status(ctx context.Context) tablesView {
	v := tablesView{Outbox: b.name, Layout: layoutOutbox, State: "ok"}
	layout, err := outboxview.Find(ctx, b.pool, b.schema)
	v.Schema, v.Version = layout.Schema, layout.Version
	switch problem := layout.Problem(); {
	case err != nil:
		v.State, v.Problem = "unavailable", err.Error()
	case !layout.There():
		v.State, v.Layout, v.Problem = "missing", "", problem
	case problem != "":
		v.State, v.Problem = "unfit", problem
	default:
		v.Warnings, err = b.box.Check(ctx)
		switch {
		case outboxview.Unfit(err):
			v.State, v.Problem = "unfit", err.Error()
		case err != nil:
			v.State, v.Problem = "unavailable", err.Error()
		}
	}
	return v
}
