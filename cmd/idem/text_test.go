package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/deadletters"
)

// rawControls are characters that a terminal obeys and that encoding/json leaves as they are.
const rawControls = "\u007f\u0080\u009b2J\u200b\u202e\u2066\U000e0041"

// The text of a producer does not reach the terminal as a command in JSON either, neither in a
// result nor in an audit line, and no value changes.
func TestJSONEscapesControlCharacters_G04(t *testing.T) {
	type row struct {
		ID string `json:"event_id"`
	}
	value := row{"a" + rawControls + "é😀<b>"}
	var out bytes.Buffer
	a := &app{stdout: &out, output: "json"}
	require.NoError(t, a.show([]row{value}, nil, nil))
	checkPrintable(t, out.String())
	require.Contains(t, out.String(), `a\u007f\u0080\u009b2J\u200b\u202e\u2066\udb40\udc41é😀<b>`)
	require.Equal(t, []row{value}, decodeJSON[[]row](t, &out))

	w, err := a.rows()
	require.NoError(t, err)
	w.list = "rows"
	require.NoError(t, w.add(value))
	require.NoError(t, w.endWith(value))
	checkPrintable(t, out.String())
	var object struct {
		row
		Rows []row `json:"rows"`
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &object))
	require.Equal(t, value, object.row)
	require.Equal(t, []row{value}, object.Rows)

	line := auditEntry("event release", map[string]any{"event_id": value.ID, "rest": json.RawMessage("\"\x9b\"")})
	checkPrintable(t, line)
	require.Equal(t, value.ID, auditLines(t, line)[0]["event_id"])
}

// checkPrintable wants a text of lines without control characters.
func checkPrintable(t *testing.T, text string) {
	t.Helper()
	require.Equal(t, plainLines(text), text)
}

// An ID of several lines cannot forge a line of the question.
func TestQuestionShowsAnIDInOneLine_G04(t *testing.T) {
	s, known := memory()
	id := "order-1\n  state: done\n\u202eGo on? [y/N] n"
	finish(t, s, claim(t, s, inScope("order", id), dedupOrigin(1)), "no such account")
	r := commandWith(t, known, "n\n", onMemory("release", id, "--type", "order")...)
	r.failed(t, exitFound, "state: dead", `order-1\n`)
	require.NotContains(t, r.stderr, "\n  state: done")
	require.Equal(t, 1, strings.Count(r.stderr, "\nGo on?"))
}

// An export to the terminal has no control characters, and can be read back.
func TestExportEscapesControlCharacters_G04(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("a", `,"text":"`+rawControls+`"`))
	r := w.dlq("", "export")
	checkPrintable(t, r.ok(t))
	lines, err := deadletters.ReadExported(strings.NewReader(r.stdout))
	require.NoError(t, err)
	require.Contains(t, lines[0].Value.Text, rawControls)
}
