package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// Answers from a pipe arrive together. Each question takes one line of them.
func TestAnswersOfSeveralQuestions(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]io.Reader{
		"together":     strings.NewReader("y\nYES\nn\n"),
		"byte by byte": iotest.OneByteReader(strings.NewReader("y\nYES\nn\n")),
	} {
		var seen bytes.Buffer
		a := &app{stdin: in, stderr: &seen}
		require.NoError(t, a.confirm("first"), name)
		require.NoError(t, a.confirm("second"), name)
		require.ErrorIs(t, a.confirm("third"), errRefused, name)
		require.ErrorIs(t, a.confirm("without an answer"), errRefused, name)
	}
	long := &app{stdin: strings.NewReader(strings.Repeat("y", maxAnswer+1) + "\n"), stderr: io.Discard}
	require.ErrorIs(t, long.confirm("a long answer"), errRefused)
}
