package setupwait_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/setupwait"
)

// TestProblem: the first error is logged, and then one a minute, until the problem is over.
func TestProblem(t *testing.T) {
	const s, over = time.Second, time.Duration(-1)
	every := func(pause time.Duration, times int) (at []time.Duration) {
		for i := range times {
			at = append(at, time.Duration(i)*pause)
		}
		return at
	}
	first := func(n string) string { return `msg="it is away" store=a error=` + n }
	still := func(age, n string) string { return `msg="it is still away" store=a for=` + age + " error=" + n }
	for name, c := range map[string]struct {
		older time.Duration   // than the first error
		at    []time.Duration // when errors come; over: the problem ends at once
		want  []string        // the lines
		after []time.Duration // results of Over
	}{
		"one error":       {at: []time.Duration{0}, want: []string{first("0")}},
		"within a minute": {at: []time.Duration{0, 59 * s}, want: []string{first("0")}},
		"a minute later":  {at: []time.Duration{0, 60 * s}, want: []string{first("0"), still("1m0s", "1")}},
		"each 25 seconds": {
			at:   every(25*s, 7),
			want: []string{first("0"), still("1m15s", "3"), still("2m30s", "6")},
		},
		"rare errors": {at: []time.Duration{0, 300 * s}, want: []string{first("0"), still("5m0s", "1")}},
		"quiet":       {at: []time.Duration{0, 301 * s}, want: []string{first("0"), first("1")}},
		"older than its first error": {
			older: 4 * s, at: []time.Duration{0, 60 * s, over},
			want:  []string{first("0"), still("1m4s", "1")},
			after: []time.Duration{64 * s},
		},
		"much older than its first error": {
			older: 600 * s, at: []time.Duration{0, 60 * s},
			want: []string{first("0"), still("11m0s", "1")},
		},
		"over":         {at: []time.Duration{0, 10 * s, over, 10 * s}, want: []string{first("0"), first("3")}, after: []time.Duration{10 * s}},
		"over twice":   {at: []time.Duration{0, over, over}, want: []string{first("0")}, after: []time.Duration{0, over}},
		"never logged": {older: s, at: []time.Duration{over}, after: []time.Duration{over}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines bytes.Buffer
				log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{
					ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
						if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
							return slog.Attr{}
						}
						return a
					},
				}))
				p := setupwait.Problem{First: "it is away", Still: "it is still away"}
				began := time.Now()
				if c.older > 0 {
					p.Since = began.Add(-c.older)
				}
				var after []time.Duration
				for i, at := range c.at {
					if at == over {
						lasted, logged := p.Over()
						if !logged {
							lasted = over
						}
						after = append(after, lasted)
						continue
					}
					time.Sleep(at - time.Since(began))
					p.Log(t.Context(), log, string(rune('0'+i)), "store", "a")
				}
				got := strings.Split(strings.TrimSpace(lines.String()), "\n")
				require.Equal(t, strings.Join(c.want, "\n"), strings.Join(got, "\n"))
				require.Equal(t, c.after, after)
			})
		})
	}
}
