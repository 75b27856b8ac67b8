package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// show prints rows as a table, or value as JSON. Control characters are escaped in both, because the
// text of a producer must not reach the terminal as a command (G-04).
func (a *app) show(value any, header []string, rows [][]string) error {
	switch a.output {
	case "json":
		enc := json.NewEncoder(printableJSON{a.stdout})
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(value)
	case "table":
		a.sayDryRun()
		w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
		if len(header) > 0 {
			fmt.Fprintln(w, strings.Join(header, "\t"))
		}
		for _, row := range rows {
			cells := make([]string, len(row))
			for i := range row {
				cells[i] = plain(row[i])
			}
			fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
		}
		return w.Flush()
	default:
		return usage("--output is table or json, not %q", a.output)
	}
}

// sayDryRun begins the text of a dry run, which is otherwise that of the change.
func (a *app) sayDryRun() {
	if a.dryRun {
		fmt.Fprintln(a.stdout, errDryRun)
	}
}

// rowWriter prints rows one by one, as a table or as a JSON array, for topics of any length.
type rowWriter struct {
	out    io.Writer
	json   bool
	list   string // name of the array in an object; empty: the array is all
	header []string
	table  *tabwriter.Writer
	n      int
	err    error
}

// tableChunk is how many rows are aligned with each other.
const tableChunk = 200

func (a *app) rows(header ...string) (*rowWriter, error) {
	switch a.output {
	case "table":
		a.sayDryRun()
		fallthrough
	case "json":
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
		before = w.open() + "\n  "
	}
	_, err = fmt.Fprintf(w.out, "%s%s", before, printable(text))
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

// open begins the array.
func (w *rowWriter) open() string {
	if w.list == "" {
		return "["
	}
	return fmt.Sprintf("{\n  %q: [", w.list)
}

// endWith finishes the output. JSON is an object with the array and the fields of value.
func (w *rowWriter) endWith(value any) error {
	if w.err != nil || !w.json {
		return w.end()
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	before := "\n  ]"
	if w.n == 0 {
		before = w.open() + "]"
	}
	rest := bytes.TrimPrefix(printable(text), []byte("{"))
	_, err = fmt.Fprintf(w.out, "%s,%s\n", before, rest)
	return err
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

// note prints a remark beside the result.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.stderr, oneLine(a.redact(fmt.Sprintf(format, args...))))
}
