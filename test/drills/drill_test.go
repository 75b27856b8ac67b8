package drills

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// long is true for `make drill`: all drills, each with more load.
func long() bool { return os.Getenv("IDEM_SOAK") != "" }

// needLong skips a drill of minutes.
func needLong(t testing.TB) {
	t.Helper()
	if !long() {
		t.Skip("a long drill: set IDEM_SOAK=1, or run make drill")
	}
}

// lasting returns the time of a load: short in CI, longer in `make drill`.
func lasting(short, forSoak time.Duration) time.Duration {
	if long() {
		return forSoak
	}
	return short
}

// program returns the path of a program. Without the program the drill is skipped, or fails if
// IDEM_REQUIRE_DRILLS is set.
func program(t testing.TB, name, hint string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, name+" is not on the path: "+hint)
	}
	return path
}

func missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("IDEM_REQUIRE_DRILLS") != "" {
		require.Fail(t, reason)
	}
	t.Skip(reason)
}

// result is the outcome of a drill.
type result struct {
	sent    int    // events
	effects int    // all of them, also the second one of an event
	lost    int    // events without an effect
	doubled int    // events with more than one effect
	name    string // added to the name of the test
	notes   string
	began   time.Time
}

// print writes the line of a drill to the log of the test, and to standard output for `make drill`.
func (r result) print(t testing.TB) {
	t.Helper()
	name := strings.TrimPrefix(t.Name(), "Test")
	if r.name != "" {
		name += "/" + r.name
	}
	line := fmt.Sprintf("drill: %s sent=%d effects=%d lost=%d doubled=%d took=%.1fs",
		name, r.sent, r.effects, r.lost, r.doubled, time.Since(r.began).Seconds())
	if r.notes != "" {
		line += " (" + r.notes + ")"
	}
	t.Log(line)
}

// tally counts the effects of events that were sent.
func tally(sent []string, effects map[string]int) (r result) {
	r.sent = len(sent)
	for _, id := range sent {
		n := effects[id]
		r.effects += n
		switch {
		case n == 0:
			r.lost++
		case n > 1:
			r.doubled++
		}
	}
	return r
}
