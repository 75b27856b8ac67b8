package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// screen shows the progress: on a terminal a line that is updated in place, otherwise a line every
// second. One goroutine uses a screen.
type screen struct {
	out      io.Writer
	terminal bool
	begin    time.Time
	last     time.Time // of the last progress
}

func newScreen(out io.Writer) *screen {
	return &screen{out: out, terminal: isTerminal(out), begin: time.Now()}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// clear removes the line that is updated in place.
func (s *screen) clear() {
	if s.terminal {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
}

// say writes a line that stays.
func (s *screen) say(format string, args ...any) {
	s.clear()
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}

// progress shows a line that the next one replaces. Lines that follow too soon are skipped.
func (s *screen) progress(line func() string) {
	every := time.Second
	if s.terminal {
		every = 100 * time.Millisecond
	}
	if time.Since(s.last) < every {
		return
	}
	s.last = time.Now()
	if !s.terminal {
		s.say("%s", line())
		return
	}
	s.clear()
	fmt.Fprintf(s.out, "%5.1fs  %s", time.Since(s.begin).Seconds(), line())
}
