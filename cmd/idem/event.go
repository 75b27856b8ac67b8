package main

import (
	"github.com/spf13/cobra"
)

func newEventCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "event",
		Short: "Inspect, release or give up events",
	}
	cmd.AddCommand(newEventGetCmd(a), newEventListCmd(a), newEventReleaseCmd(a), newEventSkipCmd(a))
	return cmd
}
