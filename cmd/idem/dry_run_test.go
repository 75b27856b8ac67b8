package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// A dry run shows the question without asking, makes no change, writes no audit line, and has the
// result of the change.
func TestDryRun(t *testing.T) {
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	finish(t, s, claim(t, s, inScope("order", "2"), dedupOrigin(2)), "no account")
	for verb, id := range map[string]string{"release": "1", "skip": "2"} {
		args := []string{"event", verb, id, "--type", "order", "-G", "billing", "--store", inMemory, "--dry-run"}
		r := commandWith(t, known, "", args...)
		require.Regexp(t, "^dry run: nothing was changed\n", r.ok(t))
		require.Contains(t, r.stderr, "The event will be")
		require.NotContains(t, r.stderr, "Go on?")
		require.Empty(t, r.audits(t))
		require.NotEqual(t, dedup.Fresh, toldNext(t, s, inScope("order", id)))

		var v verbResult
		commandWith(t, known, "", append(args, "-o", "json")...).json(t, &v)
		require.True(t, v.DryRun)
	}
	for says, args := range map[string][]string{
		"not known": {"release", "3"}, "being handled": {"release", "4"}, "handled already": {"skip", "1"},
	} {
		if args[1] == "4" {
			claim(t, s, inScope("order", "4"), dedupOrigin(4))
		}
		r := commandWith(t, known, "", append(onMemory(args...), "--type", "order", "--dry-run")...)
		r.failed(t, exitFound, says)
		require.Empty(t, r.audits(t))
	}
}

// The JSON of a dry run is that of the change with one field more, for each verb that always asks.
func TestDryRunCountsWhatTheChangeCounts(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.events("e", 6)...)
	w.fill("orders", 10, time.Hour)
	w.commit("orders", 7)
	file := "sqlite:" + filepath.Join(t.TempDir(), "scopes.db")
	command(t, "migrate", "up", "--store", file).ok(t)
	stores := map[string]*openedStore{inMemory: {name: "memory", store: w.store}}
	for _, args := range []string{
		"event skip e0 --type paid",
		"event release e1 --type paid",
		"dlq discard -t orders --id e2 --reason no",
		"dlq discard -t orders --id e2 --reason no", // left alone
		"dlq replay -t orders --id e3",
		"dlq replay -t orders --id nobody",
		"dlq purge -t orders",
		"import --from-topic orders --until 2001-01-01",
		"rewind --to 2h",
		"scope create --scope new -t orders",
	} {
		run := func(more ...string) (v map[string]any, r ran) {
			all := append(strings.Fields(args), "-o", "json", "-G", "g", "--store")
			if all = append(all, inMemory); all[0] == "scope" {
				all[len(all)-1] = file // keeps records of scopes
			}
			if verbs[strings.Join(all[:2], " ")].uses&usesKafka != 0 || verbs[all[0]].uses&usesKafka != 0 {
				all = append(all, "--brokers", w.brokers[0])
			}
			r = commandWith(t, stores, "", append(all, more...)...)
			r.ok(t)
			r.json(t, &v)
			return v, r
		}
		dry, r := run("--dry-run")
		require.Equal(t, true, dry["dry_run"], args)
		require.Empty(t, r.audits(t), args)
		again, _ := run("--dry-run")
		require.Equal(t, dry, again, "%s: the dry run has changed something", args)
		delete(dry, "dry_run")
		real, _ := run("--yes")
		require.Equal(t, dry, real, args)
	}
}

// Every verb that always asks can stop before its question, and words the flag as the others do.
func TestDryRunOfVerbs(t *testing.T) {
	eachVerb(root(), func(cmd *cobra.Command) {
		v, flag := verbs[verbName(cmd)], cmd.Flags().Lookup("dry-run")
		require.Equal(t, v.asks == "yes", flag != nil, cmd.CommandPath())
		asks := v.asks != "" && verbName(cmd) != "ops" // the page asks instead
		require.Equal(t, asks, cmd.Flags().Lookup("yes") != nil, cmd.CommandPath())
		if flag != nil {
			require.Equal(t, dryRunWords, flag.Usage)
		}
	})
}
