package main

import "github.com/spf13/cobra"

func newReapCmd(_ *app) *cobra.Command { return notYet("reap") }
