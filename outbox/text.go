package outbox

import (
	"strings"

	"github.com/idem-go/idem/internal/safetext"
)

const (
	// maxText is the greatest length of an error's text in the table and in a log.
	maxText = 1024
	// maxValue is the greatest length of a field of an entry in an error or a log.
	maxValue = 100
)

// errorText returns the text of err for the table or a log, without data of events.
func errorText(err error) string { return cleanText(safetext.Text(err)) }

// cleanText makes s valid UTF-8 without NUL, of at most maxText bytes.
func cleanText(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

// cut shortens a field of an entry for an error or a log.
func cut(s string) string { return s[:min(len(s), maxValue)] }
