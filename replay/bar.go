package replay

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Bar shows the progress of a run: a bar that moves on a terminal, plain lines elsewhere. Not safe
// for concurrent use; Run calls Update from one goroutine.
type Bar struct {
	out      io.Writer
	terminal bool
	next     time.Duration // when the next plain line is due
}

// lineEvery is the pause between the first plain lines. Later the pause is a twentieth of the
// elapsed time, so that a run of days writes some hundred lines.
const lineEvery = 10 * time.Second

// barWidth is the number of characters of the bar. lineWidth is that of a line on a terminal. A
// line must not wrap, because a wrapped line stays on the screen.
const (
	barWidth  = 20
	lineWidth = 78
)

// NewBar returns a bar on w. If w is a terminal, the bar moves in its line, unless TERM is "dumb".
// Otherwise a line is written about every 10 s, more rarely in a long run. Errors of w are ignored.
func NewBar(w io.Writer) *Bar { return &Bar{out: w, terminal: isTerminal(w), next: lineEvery} }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// Update shows p. It is a progress function for [Replay.Run].
func (b *Bar) Update(p Progress) {
	switch {
	case b.terminal:
		line := barText(p.Done, p.Total) + " " + p.short()
		_, _ = fmt.Fprintf(b.out, "\r%s\x1b[K", line[:min(len(line), lineWidth)])
		if p.Over {
			_, _ = fmt.Fprintf(b.out, "\r\x1b[K%s\n", p)
		}
	case p.Over || p.Elapsed >= b.next:
		b.next = p.Elapsed + max(lineEvery, p.Elapsed/20)
		_, _ = fmt.Fprintln(b.out, p)
	}
}

// barText draws a bar.
func barText(done, total int64) string {
	filled := barWidth
	if total > 0 {
		filled = int(float64(min(max(done, 0), total)) / float64(total) * barWidth)
	}
	return "[" + strings.Repeat("#", filled) + strings.Repeat(".", barWidth-filled) + "]"
}

// short returns the numbers that a line of a terminal has room for.
func (p Progress) short() string {
	percent := int64(100)
	if p.Total > 0 {
		percent = int64(float64(p.Done) / float64(p.Total) * 100)
	}
	text := fmt.Sprintf("%3d%% %d/%d, %.0f/s", percent, p.Done, p.Total, p.Rate)
	switch {
	case p.Over:
		text += ", took " + shortTime(p.Elapsed)
	case p.Left >= 0:
		text += ", " + shortTime(p.Left) + " left"
	}
	if p.Counts.DeadLetters > 0 {
		text += fmt.Sprintf(", %d failed", p.Counts.DeadLetters)
	}
	return text
}

// String returns the progress in one line.
func (p Progress) String() string {
	return fmt.Sprintf("%s, %d handled, %d duplicates", p.short(), p.Counts.Handled,
		p.Counts.Duplicates)
}

func shortTime(d time.Duration) string {
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
