package main

import (
	"fmt"
	"io"
	"time"
)

// screen says what goes on. It is used by one goroutine.
type screen struct {
	out   io.Writer
	begin time.Time
	last  time.Time // of the last progress
}

func newScreen(out io.Writer) *screen { return &screen{out: out, begin: time.Now()} }

func (s *screen) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}

// progress says how far things are, every two seconds.
func (s *screen) progress(line func() string) {
	if time.Since(s.last) >= 2*time.Second {
		s.last = time.Now()
		s.say("%s", line())
	}
}
