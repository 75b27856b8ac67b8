package main

import "github.com/spf13/cobra"

func newRewindCmd(_ *app) *cobra.Command { return notYet("rewind") }
