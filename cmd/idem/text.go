package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/idem-go/idem/internal/events"
)

// plain escapes control characters.
func plain(s string) string {
	s = strings.ToValidUTF8(
		s, "\uFFFD",
	) // some terminals take a single byte for a control character: 0x9b for ESC [
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// printable escapes the control characters that [encoding/json] leaves in strings. No value changes.
// text is JSON.
func printable(text []byte) []byte {
	text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	if !bytes.ContainsFunc(text, rawInJSON) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch high, low := utf16.EncodeRune(r); {
		case !rawInJSON(r):
			b.WriteRune(r)
		case r > math.MaxUint16:
			fmt.Fprintf(&b, "\\u%04x\\u%04x", high, low)
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.Bytes()
}

// rawInJSON reports whether [encoding/json] writes a control character as it is. A line feed is
// between values, and never in a string.
func rawInJSON(r rune) bool { return r >= unicode.MaxASCII && unprintable(r) }

// printableJSON is a writer of JSON. Each call writes whole characters.
type printableJSON struct{ io.Writer }

func (w printableJSON) Write(text []byte) (int, error) {
	if _, err := w.Writer.Write(printable(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// plainLines is plain for a text of several lines. A tab becomes a space.
func plainLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = plain(strings.ReplaceAll(lines[i], "\t", " "))
	}
	return strings.Join(lines, "\n")
}

// oneLine is plain for a text of several lines, such as an error of a driver, as one line.
func oneLine(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		switch text := b.String(); {
		case line == "":
			continue
		case strings.HasSuffix(text, ":"):
			b.WriteByte(' ')
		case text != "":
			b.WriteString("; ")
		}
		b.WriteString(strings.ReplaceAll(line, "\t", " "))
	}
	return plain(b.String())
}

// brief is oneLine of a text for a cell, such as a reason or an error, shortened to most
// characters. An identifier has no brief form: the one of another identifier could be the same.
func brief(s string, most int) string { return shorten(oneLine(s), most) }

// shorten keeps a table readable.
func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func at(words string, t *time.Time) string {
	if t == nil {
		return ""
	}
	return words + stampOf(t)
}

func stampOf(t *time.Time) string { return t.Format("2006-01-02 15:04:05Z") }

// short formats a duration for people.
func short(d time.Duration) string { return events.Short(d) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// timeForms are the forms of a time on the command line.
const timeForms = "a time such as 2026-01-31T12:00:00Z, a day in UTC such as 2026-01-31, or how " +
	"long ago, such as 90m"

// parseTime reads an instant, or how long ago it was. The instant of an empty text is zero.
func parseTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, usage(
			"--%s is "+timeForms+", not %q",
			flag, text,
		)
	}
	return time.Now().Add(-d), nil
}
