package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/idem-go/idem/internal/deadletters"
)

// rowWriter prints rows one by one, as a table or as a JSON array, for topics of any length.
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

// end finishes the output.
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

func failedText(r *deadletters.Row) string { return r.Failed.Format(time.RFC3339) }

// eventText is how a dead letter's event is named in a table, so far as it has a name.
func eventText(r *deadletters.Row) string {
	switch {
	case r.ID == "" && r.Type == "":
		return "-"
	case r.Scope == "": // without identity
		return cmp.Or(r.Type, "-") + " " + cmp.Or(r.ID, "-")
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

// bytesText is how bytes are shown in a table.
func bytesText(b deadletters.Bytes) string {
	switch {
	case b.Null:
		return "(null)"
	case b.Base64 != "":
		return "base64:" + b.Base64
	}
	return plain(b.Text)
}
