package main

import "github.com/spf13/cobra"

func newDoctorCmd(_ *app) *cobra.Command { return notYet("doctor") }
