package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

const (
	verbPage  = "../../docs/command.md"
	verbBegin = "<!-- verbs: made by make command-docs -->\n\n"
	verbEnd   = "\n<!-- end of verbs -->\n"
)

func root() *cobra.Command { return newRoot(&app{stdout: io.Discard, stderr: io.Discard}) }

// verbTable is the table of all commands, for the documentation. Scripts for shells come last.
func verbTable() string {
	text, shells := "| verb | does | connects to | changes | asks |\n|---|---|---|---|---|\n", ""
	eachVerb(root(), func(cmd *cobra.Command) {
		v := verbs[verbName(cmd)]
		row := fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n",
			cmd.CommandPath(), cmd.Short, cmp.Or(v.uses.connections(), "–"),
			cmp.Or(v.changes, "–"), cmp.Or(v.asks, "–"))
		if strings.HasPrefix(verbName(cmd), "completion ") {
			shells += row
		} else {
			text += row
		}
	})
	return text + shells
}

// Every command is in the table of verbs, and every line of that table is a command.
func TestVerbsAreComplete(t *testing.T) {
	var commands []string
	eachVerb(root(), func(cmd *cobra.Command) { commands = append(commands, verbName(cmd)) })
	slices.Sort(commands)
	require.Equal(t, commands, slices.Sorted(maps.Keys(verbs)), "add the command to verbs.go")
}

// The documentation has the table that the commands give.
func TestVerbTableInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile(verbPage)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), verbBegin)
	require.True(t, found, "%s has no %q", verbPage, verbBegin)
	table, after, found := strings.Cut(rest, verbEnd)
	require.True(t, found, "%s has no %q", verbPage, verbEnd)
	want := verbTable()
	if os.Getenv("IDEM_WRITE_VERBS") != "" {
		require.NoError(t, os.WriteFile(verbPage, []byte(before+verbBegin+want+verbEnd+after), 0o600))
		return
	}
	require.Equal(t, want, table, "docs/command.md is out of date: make command-docs")
}
