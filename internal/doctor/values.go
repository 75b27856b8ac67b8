package doctor

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// settings are the settings of a topic or a broker, or the values of INFO, by name. A missing value
// is not known.
type settings map[string]string

// millis reads a duration in milliseconds. -1, and any number above the range of a Duration, is
// forever.
func (s settings) millis(name string) (d time.Duration, forever, known bool) {
	n, err := strconv.ParseInt(s[name], 10, 64)
	switch {
	case err != nil:
		return 0, false, false
	case n < 0 || n > math.MaxInt64/int64(time.Millisecond):
		return 0, true, true
	}
	return time.Duration(n) * time.Millisecond, false, true
}

func (s settings) number(name string) (n int64, known bool) {
	n, err := strconv.ParseInt(s[name], 10, 64)
	return n, err == nil
}

// readLines adds the lines of the form name:value.
func (s settings) readLines(text string) {
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			s[name] = value
		}
	}
}
