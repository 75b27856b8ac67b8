package main

import "github.com/spf13/cobra"

func newMigrateCmd(_ *app) *cobra.Command { return notYet("migrate") }
