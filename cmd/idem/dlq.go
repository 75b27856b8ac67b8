package main

import "github.com/spf13/cobra"

func newDLQCmd(_ *app) *cobra.Command { return notYet("dlq") }
