package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// script is a program of the shell.
func script(t *testing.T, text string) *program {
	t.Helper()
	sh, err := exec.LookPath("sh")
	require.NoError(t, err, "a shell is needed")
	p := &program{name: "script", path: sh, args: []string{"-c", text}, dir: t.TempDir()}
	require.NoError(t, p.start())
	t.Cleanup(func() { p.kill() })
	return p
}

func TestKill(t *testing.T) {
	p := script(t, "echo begun >&2; exec sleep 60")
	require.NoError(t, p.failure())
	require.True(t, p.kill())
	require.Equal(t, 1, p.kills)
	require.False(t, p.kill(), "it is dead")
	require.NoError(t, p.failure(), "it was killed, so it has not failed")
	require.NoError(t, p.start())
	require.Equal(t, 2, p.runs)
	require.True(t, p.kill())
}

// A program that ends by itself does not count as killed.
func TestEndedByItself(t *testing.T) {
	p := script(t, "echo oh no >&2; exit 3")
	require.Eventually(t, func() bool { return len(p.ended) == 1 }, 10*time.Second, time.Millisecond)
	require.False(t, p.kill())
	require.Zero(t, p.kills)
	require.NoError(t, p.start())
	require.Eventually(t, func() bool { return len(p.ended) == 1 }, 10*time.Second, time.Millisecond)
	require.ErrorContains(t, p.failure(), "oh no")
}

func TestStop(t *testing.T) {
	p := script(t, `trap 'exit 0' TERM; echo ready; while true; do sleep 0.05; done`)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(p.file(1, "out"))
		return err == nil && len(text) > 0
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, p.stop(10*time.Second))
	require.Error(t, p.stop(time.Second), "it does not run")
	p = script(t, "exec sleep 60")
	require.ErrorContains(t, p.stop(10*time.Second), "did not end well")
}

// The last line of each run counts, and each run.
func TestCounts(t *testing.T) {
	p := &program{name: "w", dir: t.TempDir(), runs: 3}
	for run, text := range map[int]string{
		1: "msg=\"so far\" stats.handled=1 stats.duplicates=1\nmsg=\"so far\" stats.handled=5 stats.duplicates=2\nmsg=other\n",
		2: "msg=stopped counts.handled=7 counts.duplicates=10\n",
		3: "nothing\n",
	} {
		require.NoError(t, os.WriteFile(p.file(run, "log"), []byte(text), 0o600))
	}
	got, err := p.counts(0)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"handled": 12, "duplicates": 12}, got)
	got, err = p.counts(2)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"handled": 7, "duplicates": 10}, got)
	require.NoError(t, os.Remove(p.file(2, "log")))
	_, err = p.counts(0)
	require.Error(t, err)
}
