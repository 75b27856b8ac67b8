package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/doctor"
	"github.com/idem-go/idem/internal/events"
)

// A text of several lines from a server, a handler or a producer is one readable line in a table.
// The text cannot move the cursor, set colours or forge a row (G-04).
func TestCellsOfSeveralLines_G04(t *testing.T) {
	const text = "failed to connect:\n\t10.0.0.1: refused \x1b[31m\r\n\tOK  forged\u0085\n"
	const line = `failed to connect: 10.0.0.1: refused \u001b[31m; OK  forged`
	table := func(rows [][]string) string {
		var out bytes.Buffer
		require.NoError(t, (&app{stdout: &out, output: "table"}).show(nil, nil, rows))
		return out.String()
	}
	var found, findings bytes.Buffer
	a := &app{stdout: &found, stderr: &findings, output: "table"}
	_ = a.showFindings(doctor.Findings{{
		ID: "x", Verdict: doctor.Bad, Detail: text, Remedy: text,
	}})
	tables := tablesView{Store: "s", State: "unfit", Problem: text, Warnings: []string{text}}
	problem := deadletters.Detail{Row: deadletters.Row{Problem: text}}
	letters := events.DeadLettersAt{DeadLetters: []events.DeadLetter{{Error: text}}}
	for name, c := range map[string]struct {
		says  string
		lines int
	}{
		"doctor":       {found.String(), 3},
		"migrate":      {table(tables.lines()), 2},
		"event get":    {table(viewRows(&events.View{Reason: text})), 8},
		"event list":   {table(listRows([]listed{{View: events.View{Reason: text}}})), 1},
		"dlq show":     {table(detailRows(&problem)), 4},
		"short":        {table([][]string{{brief(text, 100)}}), 1},
		"dead letters": {table(deadLetterRows(&letters)), 3},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, c.says, line)
			require.Equal(t, c.lines, strings.Count(c.says, "\n"), c.says)
			require.NotContains(t, c.says, `\u000a`)
			require.NotContains(t, c.says, "\x1b")
		})
	}
	require.Equal(t, "failed to …", brief(text, 11))
}

// A payload or a header of several lines is shown line by line. Only its first line has the name,
// and no other line can look like a row of another name.
func TestPayloadOfSeveralLines_G04(t *testing.T) {
	text := "{\r\n\t\"a\": 1,\n\n  \"b\": \"\x1b[2J\"\nrecord  orders/0/1\n}\n"
	payload := deadletters.BytesOf([]byte(text))
	detail := deadletters.Detail{
		Row: deadletters.Row{Topic: "orders", Record: "0/7"}, Size: 9, Key: deadletters.Bytes{Text: "k"},
		Payload: &payload,
		Headers: []deadletters.Header{
			{Key: "idem-error\nforged", Bytes: deadletters.BytesOf([]byte("a\nb"))},
		},
	}
	var out bytes.Buffer
	require.NoError(t, (&app{stdout: &out, output: "table"}).show(nil, nil, detailRows(&detail)))
	require.Equal(t, strings.Join([]string{
		`record                  orders/0/7`,
		`kafka key               k`,
		`value                   9 bytes`,
		`idem-error\u000aforged  a`,
		`                        b`,
		`payload                 {`,
		`                         "a": 1,`,
		`                         `,
		`                          "b": "\u001b[2J"`,
		`                        record  orders/0/1`,
		`                        }`,
		"",
	}, "\n"), out.String())
	require.Equal(t, [][]string{{"key", "(null)"}}, bytesRows("key", deadletters.Bytes{Null: true}))
}

// An identifier keeps the escapes: without them it would look like another one.
func TestIdentifiersKeepEscapes(t *testing.T) {
	rows := listRows([]listed{{View: events.View{ID: "order-1\n"}}})
	var out bytes.Buffer
	require.NoError(t, (&app{stdout: &out, output: "table"}).show(nil, nil, rows))
	require.Contains(t, out.String(), `order-1\u000a`)
}
