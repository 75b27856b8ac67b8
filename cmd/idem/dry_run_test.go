package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// A dry run shows the question, asks nobody, changes nothing, and is on no record.
func TestDryRun(t *testing.T) {
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	for _, verb := range []string{"release", "skip"} {
		args := []string{"event", verb, "1", "--type", "order", "-G", "billing", "--store", inMemory, "--dry-run", "-y"}
		r := commandWith(t, known, "", args...)
		require.Empty(t, r.ok(t))
		require.Contains(t, r.stderr, "The event will be")
		require.Contains(t, r.stderr, "dry run: nothing was changed")
		require.NotContains(t, r.stderr, "Go on?")
		require.Empty(t, r.audits(t))

		var v dryRunView
		commandWith(t, known, "", append(args, "-o", "json")...).json(t, &v)
		require.True(t, v.DryRun)
		require.Contains(t, v.Would, "The event will be")
		require.Equal(t, dedup.Done, toldNext(t, s, inScope("order", "1")))
	}
	r := commandWith(t, known, "", "event", "release", "2", "--type", "order", "-G", "billing", "--store", inMemory, "--dry-run")
	r.failed(t, exitFound, "2")
	require.Empty(t, r.audits(t))
}

// The JSON of a verb that shows rows before its question stays one value.
func TestDryRunOfRows(t *testing.T) {
	a := &app{output: "json", shown: true, stderr: discard{}, stdout: discard{t}}
	require.ErrorIs(t, a.showDryRun("7 events are delivered again."), errDryRun)
}

// discard fails the test if something is written, with a test.
type discard struct{ t *testing.T }

func (d discard) Write(p []byte) (int, error) {
	if d.t != nil {
		d.t.Errorf("written: %s", p)
	}
	return len(p), nil
}

// Every verb that always asks can stop before its question, and words the flag as the others do.
func TestDryRunOfVerbs(t *testing.T) {
	eachVerb(root(), func(cmd *cobra.Command) {
		v, flag := verbs[verbName(cmd)], cmd.Flags().Lookup("dry-run")
		require.Equal(t, v.asks == "yes" || verbName(cmd) == "import", flag != nil, cmd.CommandPath())
		asks := v.asks != "" && verbName(cmd) != "ops" // whose page asks
		require.Equal(t, asks, cmd.Flags().Lookup("yes") != nil, cmd.CommandPath())
		if flag != nil {
			require.Equal(t, dryRunWords, flag.Usage)
		}
	})
}
