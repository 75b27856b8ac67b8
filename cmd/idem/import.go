package main

import "github.com/spf13/cobra"

func newImportCmd(_ *app) *cobra.Command { return notYet("import") }
