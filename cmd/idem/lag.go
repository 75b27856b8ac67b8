package main

import "github.com/spf13/cobra"

func newLagCmd(_ *app) *cobra.Command { return notYet("lag") }
