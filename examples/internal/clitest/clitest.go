// Package clitest holds the tests and helpers that the tests of the examples share.
package clitest

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Run is a program under test: it returns the exit code of a call with args.
type Run func(ctx context.Context, args []string, stderr io.Writer) int

// Case is a call with its exit code and a part of the text on standard error.
type Case struct {
	Args []string
	Want int
	Says string
}

// Usage makes calls and compares exit codes and texts. No text may have the word "hidden", which
// the calls give as a password.
func Usage(t *testing.T, run Run, cases []Case) {
	t.Helper()
	for _, c := range cases {
		var stderr bytes.Buffer
		require.Equal(t, c.Want, run(t.Context(), c.Args, &stderr), "%q: %s", c.Args, &stderr)
		require.Contains(t, stderr.String(), c.Says, "%q", c.Args)
		require.NotContains(t, stderr.String(), "hidden", "%q", c.Args)
	}
}

// HelpShowsNoPassword checks G-04: the help text and the text for wrong flags do not print the
// environment variables from which flags take their defaults.
func HelpShowsNoPassword(t *testing.T, run Run) {
	t.Helper()
	for _, name := range []string{"POSTGRES_URL", "REDIS_URL", "PAYMENTS_SECRET"} {
		t.Setenv(name, "postgres://u:hidden@h/x")
	}
	for _, arg := range []string{"-h", "-help", "-nonsense"} {
		var stderr bytes.Buffer
		run(t.Context(), []string{arg}, &stderr)
		require.Contains(t, stderr.String(), "-postgres URL")
		require.NotContains(t, stderr.String(), "hidden")
	}
}

// Seed returns the source of everything random in a test, and its seed. The environment variable
// repeats an earlier seed; Seed logs how.
func Seed(t testing.TB, variable string) (*rand.Rand, uint64) {
	t.Helper()
	seed := rand.Uint64() >> 32 // short enough to type
	if s := os.Getenv(variable); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, variable)
	}
	t.Logf("repeat with %s=%d", variable, seed)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// Main is the TestMain of a package that starts its test binary as the program. With the variable
// set the binary runs program, so that the program has the race detector of the tests. The program
// ends with its standard input, which closes when the test dies.
func Main(m *testing.M, variable string, program func()) {
	if os.Getenv(variable) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		program()
	}
	os.Exit(m.Run())
}
