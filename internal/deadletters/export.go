package deadletters

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idem/deadletter"
)

// This file writes dead letters as lines of JSON, and reads such lines again.
//
// A line has no authority. The command reads the record of each line from the dead-letter topic
// again, and takes all but the value from there. A line that differs in another field is refused,
// so that an edited file cannot name another topic, group, event or header (G-03).

// Exported is a dead letter as a line of an exported file, with its value.
type Exported struct {
	// Format is [ExportFormat].
	Format string `json:"format"`
	Row
	Key     Bytes    `json:"kafka_key"`
	Headers []Header `json:"headers"` // as they are in the topic
	// SHA256 is that of the value in the topic, see [deadletter.ValueHash].
	SHA256 string `json:"sha256"`
	// Value is the value in the topic, or the edited value of an operator.
	Value Bytes `json:"value"`
}

// ExportFormat names the format of a line.
const ExportFormat = "idem-dead-letter/1"

// The bounds of an exported file.
const (
	MaxExported    = 10_000
	MaxExportBytes = 256 << 20
)

// ErrExport is that a text is no exported file.
var ErrExport = errors.New("not an exported file of dead letters")

// Export returns the line of a record.
func (l *Found) Export() Exported {
	d := l.Detail(true)
	return Exported{
		Format: ExportFormat, Row: d.Row, Key: d.Key, Headers: d.Headers,
		SHA256: deadletter.ValueHash(l.Record.Value), Value: *d.Payload,
	}
}

// Place is where the record of the line was.
func (x *Exported) Place() (Place, error) { return ParsePlace(x.Record) }

// byPlace returns the lines by the places of their records, or nil without a line.
func byPlace(lines []Exported) (map[Place]*Exported, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	all := make(map[Place]*Exported, len(lines))
	for i := range lines {
		at, err := lines[i].Place()
		if err != nil {
			return nil, err
		}
		all[at] = &lines[i]
	}
	return all, nil
}

// WriteExported writes a line.
func WriteExported(w io.Writer, x *Exported) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(x)
}

// ReadExported reads an exported file. The error matches [ErrExport] for any other text, and for a
// file beyond the bounds.
func ReadExported(r io.Reader) ([]Exported, error) {
	lines := bufio.NewScanner(io.LimitReader(r, MaxExportBytes+1))
	lines.Buffer(nil, MaxExportBytes)
	var all []Exported
	read, seen := 0, make(map[Place]bool)
	for n := 1; lines.Scan(); n++ {
		read += len(lines.Bytes()) + 1
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		x, at, err := parseExported(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: line %d: %w", ErrExport, n, err)
		case seen[at]:
			return nil, fmt.Errorf("%w: line %d: a second line of record %s", ErrExport, n, at)
		case len(all) == MaxExported:
			return nil, fmt.Errorf("%w: more than %d lines", ErrExport, MaxExported)
		}
		seen[at] = true
		all = append(all, x)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong), err == nil && read > MaxExportBytes:
		return nil, fmt.Errorf("%w: more than %d MiB", ErrExport, MaxExportBytes>>20)
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, fmt.Errorf("%w: no line", ErrExport)
	}
	return all, nil
}

func parseExported(line []byte) (x Exported, at Place, err error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&x); err != nil {
		return x, at, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return x, at, errors.New("text after the object")
	}
	if x.Format != ExportFormat {
		return x, at, fmt.Errorf("format %q instead of %q", x.Format, ExportFormat)
	}
	at, err = x.Place()
	return x, at, err
}

// Differs returns the names of the fields, apart from the value, that differ from the record in the
// topic. SHA256 is one of them if the record has another value than at the export.
func (x *Exported) Differs(l *Found) (names []string) {
	want := l.Export()
	got := *x
	want.Value, got.Value = Bytes{}, Bytes{}
	a, b := fieldsOf(&want), fieldsOf(&got)
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fieldsOf returns the fields of a line in their form of JSON, in which equal lines are equal.
func fieldsOf(x *Exported) map[string]json.RawMessage {
	var text bytes.Buffer
	fields := make(map[string]json.RawMessage)
	if WriteExported(&text, x) != nil || json.Unmarshal(text.Bytes(), &fields) != nil {
		return map[string]json.RawMessage{"": text.Bytes()} // of a line, this cannot happen
	}
	return maps.Clone(fields)
}

// Bytes returns the bytes. The error is for a text beside base64, or for wrong base64.
func (b Bytes) Bytes() ([]byte, error) {
	set := 0
	for _, is := range []bool{b.Null, b.Text != "", b.Base64 != ""} {
		if is {
			set++
		}
	}
	switch {
	case set > 1:
		return nil, errors.New("one of text, base64 and null, not several")
	case b.Null:
		return nil, nil
	case b.Base64 != "":
		return base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(b.Base64))
	default:
		return []byte(b.Text), nil
	}
}
