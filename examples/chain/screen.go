package main

import (
	"fmt"
	"io"
	"time"
)

// screen shows the progress. One goroutine uses a screen.
type screen struct {
	out   io.Writer
	begin time.Time
	last  time.Time // of the last progress
}

func newScreen(out io.Writer) *screen { return &screen{out: out, begin: time.Now()} }

func (s *screen) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}

// progress shows a line every two seconds.
func (s *screen) progress(line func() string) {
	if time.Since(s.last) >= 2*time.Second {
		s.last = time.Now()
		s.say("%s", line())
	}
}
