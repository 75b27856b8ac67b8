package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// verb is what a person should know of a command before it runs.
type verb struct {
	changes string // what the command changes, or "" for nothing
	asks    string // when the command asks first: "yes", a condition, or "" for never
}

// verbs are all runnable commands, by their names without the program's.
var verbs = map[string]verb{
	"completion bash":       {},
	"completion fish":       {},
	"completion powershell": {},
	"completion zsh":        {},
	"dlq discard":           {changes: "store", asks: "yes"},
	"dlq ls":                {},
	"dlq plan":              {},
	"dlq purge":             {changes: "dead-letter topic", asks: "yes"},
	"dlq replay":            {changes: "store, retry topic", asks: "yes"},
	"dlq show":              {},
	"doctor":                {},
	"event get":             {},
	"event list":            {},
	"event release":         {changes: "store", asks: "yes"},
	"event skip":            {changes: "store", asks: "yes"},
	"import":                {changes: "store", asks: "unless `--dry-run`"},
	"init":                  {changes: "new files"},
	"lag":                   {},
	"migrate print":         {},
	"migrate status":        {},
	"migrate up":            {changes: "tables"},
	"outbox parked":         {},
	"outbox retry":          {changes: "outbox", asks: "yes"},
	"outbox skip":           {changes: "outbox", asks: "yes"},
	"outbox status":         {},
	"reap":                  {changes: "store", asks: "for `--wall-clock`, or a shorter `--dead-letter-retention`"},
	"relay":                 {changes: "outbox, topics"},
	"rewind":                {changes: "offsets", asks: "yes"},
	"version":               {},
}

// verbName is the key of a command in verbs.
func verbName(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}

// eachVerb visits the runnable commands below cmd, in the order of their names.
func eachVerb(cmd *cobra.Command, visit func(*cobra.Command)) {
	if !cmd.HasSubCommands() {
		visit(cmd)
		return
	}
	for _, sub := range cmd.Commands() {
		eachVerb(sub, visit)
	}
}
