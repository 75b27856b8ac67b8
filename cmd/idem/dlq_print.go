package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem"
)

// rowWriter prints rows as they come, as a table or as a JSON array, so that a topic of any length can be listed.
type rowWriter struct {
	out    io.Writer
	json   bool
	header []string
	table  *tabwriter.Writer
	n      int
	err    error
}

// tableChunk is how many rows are aligned with each other.
const tableChunk = 200

func (a *app) rows(header ...string) (*rowWriter, error) {
	switch a.output {
	case "json", "table":
		return &rowWriter{out: a.stdout, json: a.output == "json", header: header}, nil
	default:
		return nil, usage("--output is table or json, not %q", a.output)
	}
}

// add prints cells in a table, or value.
func (w *rowWriter) add(value any, cells ...string) error {
	if w.err != nil {
		return w.err
	}
	if w.json {
		w.err = w.addJSON(value)
	} else {
		w.err = w.addCells(cells)
	}
	w.n++
	return w.err
}

func (w *rowWriter) addJSON(value any) error {
	text, err := json.MarshalIndent(value, "  ", "  ")
	if err != nil {
		return err
	}
	before := ",\n  "
	if w.n == 0 {
		before = "[\n  "
	}
	_, err = fmt.Fprintf(w.out, "%s%s", before, text)
	return err
}

func (w *rowWriter) addCells(cells []string) error {
	if w.table == nil {
		w.table = tabwriter.NewWriter(w.out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w.table, strings.Join(w.header, "\t"))
	}
	for i := range cells {
		cells[i] = plain(cells[i])
	}
	if _, err := fmt.Fprintln(w.table, strings.Join(cells, "\t")); err != nil {
		return err
	}
	if w.n%tableChunk == tableChunk-1 {
		return w.table.Flush()
	}
	return nil
}

// end finishes what was printed.
func (w *rowWriter) end() error {
	switch {
	case w.err != nil:
		return w.err
	case w.json && w.n == 0:
		_, err := fmt.Fprintln(w.out, "[]")
		return err
	case w.json:
		_, err := fmt.Fprint(w.out, "\n]\n")
		return err
	case w.table != nil:
		return w.table.Flush()
	}
	return nil
}

// letterRow is a dead letter as JSON.
type letterRow struct {
	Record     string     `json:"record"` // partition/offset
	Topic      string     `json:"topic"`
	Failed     time.Time  `json:"failed"`
	Class      idem.Class `json:"class,omitempty"`
	Tenant     string     `json:"tenant,omitempty"`
	Scope      string     `json:"scope,omitempty"`
	Type       string     `json:"type,omitempty"`
	ID         string     `json:"id,omitempty"`
	Origin     string     `json:"origin,omitempty"` // topic/partition/offset
	Group      string     `json:"group,omitempty"`
	Attempts   int        `json:"attempts"`
	Generation uint32     `json:"generation"`
	Error      string     `json:"error,omitempty"`
	Omitted    bool       `json:"valueOmitted,omitempty"`
	Problem    string     `json:"problem,omitempty"` // why it is no letter

	Verdict verdict `json:"verdict,omitempty"`
	Action  string  `json:"action,omitempty"`
	Note    string  `json:"note,omitempty"`
}

func rowOf(l *foundLetter) letterRow {
	row := letterRow{Record: l.place.String(), Topic: l.topic, Failed: l.failed().UTC()}
	if l.letter == nil {
		row.Problem = l.err.Error()
		return row
	}
	t := l.letter
	row.Class, row.Error, row.Attempts, row.Generation, row.Omitted, row.Group = t.Class, t.Error, t.Attempts, t.Generation, t.Omitted, t.Group
	row.Tenant, row.Scope, row.Type, row.ID = t.Key.Tenant, t.Key.Scope, t.Key.Type, t.Key.ID
	row.Origin = fmt.Sprintf("%s/%d/%d", t.Message.Topic, t.Message.Partition, t.Message.Offset)
	return row
}

func (r *letterRow) failed() string { return r.Failed.Format(time.RFC3339) }

// event is how a letter's event is named in a table.
func (r *letterRow) event() string {
	if r.ID == "" {
		return "-"
	}
	return r.Type + " " + r.ID
}

// shorten keeps a table readable.
func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// shownHeader and shownBytes are text where that is possible.
type shownHeader struct {
	Key string `json:"key"`
	shownBytes
}

type shownBytes struct {
	Null   bool   `json:"null,omitempty"`
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"` // not valid UTF-8
}

func bytesOf(b []byte) shownBytes {
	switch {
	case b == nil:
		return shownBytes{Null: true}
	case utf8.Valid(b):
		return shownBytes{Text: string(b)}
	default:
		return shownBytes{Base64: base64.StdEncoding.EncodeToString(b)}
	}
}

func (s shownBytes) String() string {
	switch {
	case s.Null:
		return "(null)"
	case s.Base64 != "":
		return "base64:" + s.Base64
	}
	return plain(s.Text)
}
