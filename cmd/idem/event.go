package main

import "github.com/spf13/cobra"

func newEventCmd(_ *app) *cobra.Command { return notYet("event") }
