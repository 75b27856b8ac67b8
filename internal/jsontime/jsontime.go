// Package jsontime bounds times to those with a form in JSON. A producer chooses the time of its
// record freely: one that counts in microseconds writes times far beyond the year 9999. One such
// record must not make a whole answer unreadable.
package jsontime

import "time"

// Known returns t in UTC, or the zero time if t lies outside of the years 1 to 9999: encoding/json
// refuses years beyond 9999. Safe for concurrent use.
func Known(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// Time is a time with a form in JSON: that of [Known].
type Time struct{ time.Time }

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) { return Known(t.Time).MarshalJSON() }

// Pointer returns [Known] of t, or nil instead of the zero time. Safe for concurrent use.
func Pointer(t time.Time) *time.Time {
	if t = Known(t); t.IsZero() {
		return nil
	}
	return &t
}
