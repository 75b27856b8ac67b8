package main

import (
	"github.com/spf13/cobra"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

func newOutboxCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "Inspect an outbox, retry or skip parked rows",
	}
	cmd.AddCommand(
		newOutboxStatusCmd(a), newOutboxParkedCmd(a), newOutboxRetryCmd(a), newOutboxSkipCmd(a),
	)
	return cmd
}

var _ outbox.Store = (*pgoutbox.Outbox)(nil)
