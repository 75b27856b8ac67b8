package main

import (
	"github.com/spf13/cobra"
)

func newDLQCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Dead letters: list, show, plan, replay, edit, export, discard, purge",
		Long: "Commands for the dead letters of a consumer group.\n" +
			"\n" +
			"Kafka has no index: each command reads the dead-letter topic from the beginning\n" +
			"to the present end and prints the number of records. The store has the state of\n" +
			"each event. A replay leaves the dead letters in their topic; a purge deletes\n" +
			"them.",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(
		newDLQList(a), newDLQShow(a), newDLQPlan(a), newDLQReplay(a), newDLQEdit(a),
		newDLQExport(a), newDLQDiscard(a), newDLQPurge(a),
	)
	return cmd
}
