package decision

import "time"

// Expired is a summary of rows of one table that have expired. The zero value is that of no row.
type Expired struct {
	Made time.Time // when the newest of them was made
	// Limit is when the last row that was read expired; zero: all expired rows were read.
	Limit time.Time
}

// Onward adds the summary of the rows that expired from a time on. If so many rows expired at that
// time that reading ended with them, the next reading begins a microsecond later.
func (e Expired) Onward(from time.Time, rest Expired) Expired {
	sum := Expired{Made: later(e.Made, rest.Made)}
	if !rest.Limit.IsZero() {
		sum.Limit = later(rest.Limit, from.Add(time.Microsecond))
	}
	return sum
}

// NextHorizon returns the horizon and the cut-off for the rows of the tables. The result some is
// false if no row has expired. old is the present horizon, and until the consumed time. A row may
// be deleted if it was made before the horizon and expired before the cut-off.
func NextHorizon(old, until time.Time, tables ...Expired) (before, cutoff time.Time, some bool) {
	before, cutoff = old, until
	for _, e := range tables {
		if e.Made.IsZero() {
			continue
		}
		some = true
		before = later(before, e.Made)
		if !e.Limit.IsZero() && e.Limit.Before(cutoff) {
			cutoff = e.Limit
		}
	}
	return before, cutoff, some
}

// WindowRows is how many rows of a table one statement of a reaper reads, in the order of their
// expiry. Without a bound, rows that stay could take each statement beyond its time limit, and no
// row would be deleted any more.
const WindowRows = 50_000

// WindowEnd returns the end of a window of rows that expired before a time. n rows of at most limit
// were read, and the last one expired at the time last. A full window ends behind all rows with the
// expiry of its last one, so that the next window begins later. The result more is true if the next
// window may have rows.
func WindowEnd(n, limit int, last, until time.Time) (end time.Time, more bool) {
	if n < limit {
		return until, false
	}
	end = last.Add(time.Microsecond)
	if !end.Before(until) {
		return until, false
	}
	return end, true
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
