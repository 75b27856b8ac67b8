package ops

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/words"
)

// This file formats numbers and times for people.

// clip shortens s to at most n bytes of valid UTF-8.
func clip(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// figure is a count, which is a lower bound if it was cut.
func figure(n int64, cut bool) string {
	if cut {
		return words.Number(n) + " or more"
	}
	return words.Number(n)
}

// title is a count with its noun, at the begin of a sentence.
func title(n int64, noun string, cut bool) string {
	if cut {
		return "At least " + words.Count(n, noun)
	}
	return words.Count(n, noun)
}

// outboxRows is a count of rows of an outbox.
func outboxRows(n int64) string { return figure(n, n >= maxCounted) }

// rate is a number of things in a second.
func rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond < 10:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return words.Number(int64(perSecond + 0.5))
}

func percent(n, whole uint64) string {
	if whole == 0 {
		return "0 %"
	}
	p := 100 * float64(n) / float64(whole)
	switch {
	case n == 0:
		return "0 %"
	case p < 0.1:
		return "< 0.1 %"
	case p < 10:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(p, 'f', 0, 64) + " %"
}

// span is a length of time in one or two words.
func span(d time.Duration) string {
	d = max(d, -d)
	switch {
	case d < time.Second:
		return strconv.Itoa(int(d.Milliseconds())) + " ms"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 48*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

func two(a int, unitA string, b int, unitB string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unitA)
	}
	return fmt.Sprintf("%d %s %d %s", a, unitA, b, unitB)
}

// ago formats the distance of a time, in the past or the future.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "not known"
	case d.Abs() < time.Second:
		return "just now"
	case d < 0:
		return "in " + span(d)
	}
	return span(d) + " ago"
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// clock is the time of the day if t is of the day of now, else the day too.
func clock(now, t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	t, now = t.UTC(), now.UTC()
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}

func machineTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// size is a number of bytes.
func size(n int) string {
	switch {
	case n < 1024:
		return words.Count(n, "byte")
	case n < 1<<20:
		return strconv.FormatFloat(float64(n)/1024, 'f', 1, 64) + " KiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
}

// capital begins s with a capital dead letter.
func capital(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:]
}

// maxErrorText limits the kept text of an error.
const maxErrorText = 512
