// Package faketime bounds tests in the bubbles of testing/synctest. A test may wait there for an
// event that never comes, while timers of the code under test go on. Such a test spins until the
// time-out of the whole binary.
package faketime

import (
	"fmt"
	"time"
)

// Most is the maximum duration of a test, in the time of the bubble.
const Most = 7 * 24 * time.Hour

// Bound ends the test binary with a panic when the caller's bubble has lasted for [Most]. Call
// Bound at the begin of a bubble, and stop before the end of the bubble.
func Bound(test string) (stop func()) {
	timer := time.AfterFunc(Most, func() {
		panic(fmt.Sprintf(
			"%s has lasted for %s of fake time: it waits for something that never comes",
			test, Most))
	})
	return func() { timer.Stop() }
}
