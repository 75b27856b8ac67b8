package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// verb has the facts of a command that a person should know before it runs.
type verb struct {
	uses    uses
	changes string // the objects that the command changes, or ""
	asks    string // when the command asks first: "yes", a condition, or "" for never
}

// verbs are all runnable commands, by their names without the program's.
var verbs = map[string]verb{
	"completion bash":       {},
	"completion fish":       {},
	"completion powershell": {},
	"completion zsh":        {},
	"dlq discard":           {uses: usesEventsInKafka | usesChange, changes: "store", asks: "yes"},
	"dlq edit": {
		uses: usesEventsInKafka | usesChange, changes: "store, retry topic", asks: "yes",
	},
	"dlq export": {uses: usesEvents | usesKafka | usesAudit, changes: "new file"},
	"dlq ls":     {uses: usesOutput | usesGroup | usesScope | usesKafka},
	"dlq plan":   {uses: usesEvents | usesKafka},
	"dlq purge": {
		uses: usesEventsInKafka | usesChange, changes: "dead-letter topic", asks: "yes",
	},
	"dlq replay": {
		uses: usesEventsInKafka | usesChange, changes: "store, retry topic", asks: "yes",
	},
	"dlq show":       {uses: usesOutput | usesGroup | usesScope | usesKafka},
	"doctor":         {uses: usesEvents | usesKafka},
	"event get":      {uses: usesEvents | usesKafka},
	"event list":     {uses: usesEvents},
	"event release":  {uses: usesEvents | usesChange, changes: "store", asks: "yes"},
	"event skip":     {uses: usesEventsInKafka | usesChange, changes: "store", asks: "yes"},
	"import":         {uses: usesEventsInKafka | usesChange, changes: "store", asks: "yes"},
	"init":           {changes: "new files"},
	"lag":            {uses: usesOutput | usesGroup | usesKafka},
	"migrate print":  {},
	"migrate status": {uses: usesOutput | usesTables},
	"migrate up":     {uses: usesOutput | usesTables | usesAudit, changes: "tables"},
	"ops": {
		uses:    usesEventsInKafka | usesOutbox | usesAudit,
		changes: "store, retry topic", asks: "on its page",
	},
	"outbox parked": {uses: usesOutput | usesOutbox},
	"outbox retry":  {uses: usesOutput | usesOutbox | usesChange, changes: "outbox", asks: "yes"},
	"outbox skip":   {uses: usesOutput | usesOutbox | usesChange, changes: "outbox", asks: "yes"},
	"outbox status": {uses: usesOutput | usesOutbox},
	"reap": {
		uses: usesOutput | usesTables | usesQuestion | usesAudit, changes: "store",
		asks: "for `--wall-clock`, or a shorter `--dead-letter-retention`",
	},
	"relay":        {uses: usesOutput | usesOutbox | usesKafka, changes: "outbox, topics"},
	"rewind":       {uses: usesEventsInKafka | usesChange, changes: "offsets", asks: "yes"},
	"scope accept": {uses: usesEvents | usesChange, changes: "store", asks: "yes"},
	"scope create": {uses: usesEvents | usesChange, changes: "store", asks: "yes"},
	"version":      {uses: usesOutput},
}

// verbName is the key of a command in verbs.
func verbName(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}

// eachVerb visits the runnable commands below cmd, in the order of their names. Topics of help are
// not visited.
func eachVerb(cmd *cobra.Command, visit func(*cobra.Command)) {
	switch {
	case cmd.IsAdditionalHelpTopicCommand():
		return
	case !cmd.HasSubCommands():
		visit(cmd)
		return
	}
	for _, sub := range cmd.Commands() {
		eachVerb(sub, visit)
	}
}

// connections are the kinds of servers and files that a verb may open.
func (u uses) connections() string {
	var names []string
	for _, c := range []struct {
		of   uses
		name string
	}{{usesStores | usesTables, "stores"}, {usesOutbox, "outbox"}, {usesKafka, "Kafka"}} {
		if u&c.of != 0 {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}
