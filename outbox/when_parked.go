package outbox

import "fmt"

// WhenParked is the policy for the events behind a row that was parked. The zero value is [Halt].
type WhenParked int

const (
	// Halt stops the aggregate until a person has retried or skipped the parked row. The order of
	// the aggregate is kept. Other aggregates go on.
	Halt WhenParked = iota
	// Skip publishes the next event of the aggregate without the parked row. Events that a relay
	// with Halt has blocked before, and those behind them, wait for a person all the same.
	Skip
)

// String returns the name of w in flags and logs: halt or skip.
func (w WhenParked) String() string {
	switch w {
	case Halt:
		return "halt"
	case Skip:
		return "skip"
	}
	return fmt.Sprintf("WhenParked(%d)", int(w))
}
