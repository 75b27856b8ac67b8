package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	progressEvery     = 5 * time.Second        // between two lines of a log
	progressTerminal  = 200 * time.Millisecond // between two forms of the line of a terminal
	progressClearLine = "\r\x1b[K"
)

// progress shows on standard error how far a long verb is. On a terminal it is one line that
// changes, else a line every few seconds. It is not safe for concurrent use.
type progress struct {
	out      io.Writer
	terminal bool
	what     string // that is counted, such as "records"
	total    int64  // 0: not known
	estimate bool   // the total is one
	now      func() time.Time

	began, told time.Time
	n           int64
	open        bool // the line of the terminal shows something
}

// progress begins to count. end must be called.
func (a *app) progress(what string, total int64) *progress {
	now := a.now
	if now == nil {
		now = time.Now
	}
	return newProgress(a.stderr, writesToTerminal(a.stderr), what, total, now)
}

func newProgress(
	out io.Writer, terminal bool, what string, total int64, now func() time.Time,
) *progress {
	p := &progress{out: out, terminal: terminal, what: what, total: total, now: now, began: now()}
	p.told = p.began
	return p
}

// add counts n more. more describes the present state, and may be nil.
func (p *progress) add(n int64, more func() string) {
	p.n += n
	now := p.now()
	every := progressEvery
	if p.terminal {
		every = progressTerminal
	}
	if now.Sub(p.told) < every {
		return
	}
	p.told = now
	line := progressText(p.what, p.n, p.total, p.estimate, now.Sub(p.began))
	if more != nil {
		line += ", " + more()
	}
	if p.terminal {
		p.open = true
		fmt.Fprint(p.out, progressClearLine+plain(line))
		return
	}
	fmt.Fprintln(p.out, "idem: "+plain(line))
}

// end removes the line from the terminal. Call it before other output as well.
func (p *progress) end() {
	if p.open {
		p.open = false
		fmt.Fprint(p.out, progressClearLine)
	}
}

// progressText is a line with count, share, rate and the rest of the time, so far as they are
// known. An estimate that was too small is not shown any more.
func progressText(what string, n, total int64, estimate bool, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", n)
	if estimate && n > total {
		total = 0
	}
	switch {
	case total > 0 && estimate:
		fmt.Fprintf(&b, " of about %d", total)
	case total > 0:
		fmt.Fprintf(&b, " of %d", total)
	}
	b.WriteString(" " + what)
	if total > 0 {
		fmt.Fprintf(&b, " (%d %%)", min(100, n*100/total))
	}
	if took < time.Second || n == 0 {
		return b.String()
	}
	rate := float64(n) / took.Seconds()
	fmt.Fprintf(&b, ", %.3g a second", rate)
	if left := float64(total-n) / rate; total > n {
		fmt.Fprintf(&b, ", about %s left", short(seconds(left).Round(time.Second)))
	}
	return b.String()
}
