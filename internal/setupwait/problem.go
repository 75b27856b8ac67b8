package setupwait

import (
	"context"
	"log/slog"
	"time"
)

// RepeatEvery is how often a problem that lasts is logged again.
const RepeatEvery = time.Minute

// quietFor without an error means that a problem was over before the next error. A client that
// connects again by itself does not report the success.
const quietFor = 5 * time.Minute

// Problem logs a problem that lasts: its first error, and then one in each RepeatEvery. A problem
// ends with Over, or with five minutes without an error. One goroutine uses a Problem.
type Problem struct {
	// First is the text for the first error, and Still the text for later ones. Required.
	First, Still string
	// Since is when the problem began. Default: at its first error.
	Since time.Time

	logged, heard time.Time
}

// Log notes an error, and logs the error unless the log had the problem within RepeatEvery. The
// line has attrs and the error. From the second line on it has the age of the problem as well.
func (p *Problem) Log(ctx context.Context, log *slog.Logger, err string, attrs ...any) {
	now := time.Now()
	again := !p.heard.IsZero()
	if p.Since.IsZero() || again && now.Sub(p.heard) > quietFor {
		p.Since, p.logged = now, time.Time{}
	}
	p.heard = now
	first := p.logged.IsZero()
	if !first && now.Sub(p.logged) < RepeatEvery {
		return
	}
	p.logged = now
	text, line := p.First, append([]any(nil), attrs...)
	if !first {
		text = p.Still
		line = append(line, "for", now.Sub(p.Since).Round(time.Second))
	}
	log.WarnContext(ctx, text, append(line, "error", err)...)
}

// Over ends the problem. lasted is how long it lasted, and logged whether the log has it.
func (p *Problem) Over() (lasted time.Duration, logged bool) {
	if p.logged.IsZero() {
		return 0, false
	}
	lasted = time.Since(p.Since).Round(time.Millisecond)
	p.Since, p.logged, p.heard = time.Time{}, time.Time{}, time.Time{}
	return lasted, true
}
