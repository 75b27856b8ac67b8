package acls

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The names of docs/operations.md.
const (
	topic, group = "payments", "orders"
	deadLetters  = topic + "." + group + ".dlq"
	replays      = topic + "." + group + ".retry"
	delayed      = replays + ".1s"
)

// TestRights runs each role with the rights that docs/operations.md gives it and no others, and
// without each of them. The rights are granted by the commands of the document, with Kafka's own
// tool.
func TestRights(t *testing.T) {
	commands := documented(t)
	b := startBroker(t, usersOf(commands))
	w := newWorld(t, b)
	var retries, rest []string // consumers with retry topics come after those without
	for _, c := range commands {
		if strings.Contains(c, "User:consumer") && strings.Contains(c, replays) {
			retries = append(retries, c)
		} else {
			rest = append(rest, c)
		}
	}
	require.Len(t, retries, 1)
	b.createTopics(topic, deadLetters, replays, delayed, "shipments")
	b.grant(rest...)
	b.settle()
	b.awaitGroups()
	for _, role := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"consumer", w.consumer}, {"reader", w.reader}, {"relay", w.relay},
		{"consumer with retries", func(t *testing.T) {
			b.grant(retries...)
			b.settle()
			w.retries(t)
		}},
		{"replayer", w.replayer}, {"window replayer", w.windowReplayer}, {"ops page", w.page},
		{"creator", w.creator},
	} {
		if !t.Run(role.name, role.run) {
			return // the next ones go on with the state that this one has left
		}
	}
	require.ElementsMatch(t, rightsOf(t, commands), slices.Collect(maps.Keys(b.taken)), "each right of the document was taken away once, to see what fails")
}
