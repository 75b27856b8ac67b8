package main

import (
	"testing"

	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/examples/internal/clitest"
)

func TestUsage(t *testing.T) {
	t.Setenv("POSTGRES_URL", "")
	clitest.Usage(t, run, []clitest.Case{
		{Args: []string{"-h"}, Want: cli.ExitOK, Says: "Usage of payments"},
		{Args: []string{"-nonsense"}, Want: cli.ExitUsage, Says: "not defined"},
		{Args: nil, Want: cli.ExitUsage, Says: "-postgres is missing"},
		{Args: []string{"-postgres", "postgres://x", "now"}, Want: cli.ExitUsage, Says: `unexpected argument "now"`},
		{Args: []string{"-postgres", "postgres://x", "-connections", "0"}, Want: cli.ExitUsage, Says: "-connections must be"},
		{Args: []string{"-postgres", "postgres://x", "-provider-timeout", "14s"}, Want: cli.ExitUsage, Says: "-provider-timeout must be"},
		{Args: []string{"-postgres", "postgres://x", "-topic", "no topic"}, Want: cli.ExitUsage, Says: `-topic "no topic" is not a topic name`},
		{Args: []string{"-postgres", "postgres://u:hidden@h:bad/x"}, Want: cli.ExitError, Says: "cannot be parsed"},
		{Args: []string{"-postgres", "postgres://127.0.0.1:1/none"}, Want: cli.ExitError, Says: "migrate"},
		{Args: []string{"-fake-provider", "nowhere:at-all"}, Want: cli.ExitError, Says: "failed"},
	})
}

func TestHelp_ShowsNoPassword_G04(t *testing.T) {
	clitest.HelpShowsNoPassword(t, run)
}
