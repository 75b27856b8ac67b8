package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// shellWord matches a word of a shell, without escapes.
var shellWord = regexp.MustCompile(`'([^']*)'|(\S+)`)

func shellWords(line string) (words []string) {
	for _, m := range shellWord.FindAllStringSubmatch(line, -1) {
		words = append(words, m[1]+m[2])
	}
	return words
}

// parse finds the verb of a command line and takes its flags and arguments, without running it.
func parse(words []string) (*cobra.Command, error) {
	cmd, rest, err := root().Find(words[1:])
	if err != nil {
		return cmd, err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return cmd, err
	}
	for _, check := range []func() error{
		func() error { return cmd.ValidateArgs(cmd.Flags().Args()) },
		cmd.ValidateRequiredFlags, cmd.ValidateFlagGroups,
	} {
		if err := check(); err != nil {
			return cmd, err
		}
	}
	return cmd, nil
}

// The help of every command has examples of that command, which can be run.
func TestExamples(t *testing.T) {
	eachVerb(root(), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		require.NotEmpty(t, cmd.Example, "%s has no example", path)
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			require.Regexp(t, `^  \S`, line, "cobra does not indent examples")
			words := shellWords(line)
			found, err := parse(words)
			require.NoError(t, err, line)
			require.Equal(t, path, found.CommandPath(), line)
			found.Flags().Visit(func(f *pflag.Flag) {
				require.False(t, f.Hidden || f.Deprecated != "", "--%s of %s is an old name", f.Name, line)
			})
		}
	})
}
