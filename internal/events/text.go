package events

import (
	"strconv"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Short formats a duration for people.
func Short(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs < time.Second:
		return d.Round(time.Millisecond).String()
	case abs < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

// Stuck reports whether the lease of a claimed event is over.
func Stuck(r dedup.Record) bool { return r.State == dedup.Claimed && r.Lease <= 0 }
