// Package faketime bounds tests in the bubbles of testing/synctest. A test that waits there for something that never comes, while timers
// of the code under test go on, spins until the time-out of the whole binary.
package faketime

import (
	"fmt"
	"time"
)

// Most is how long a test may last in the time of its bubble.
const Most = 7 * 24 * time.Hour

// Bound ends the test binary with a panic when the bubble of its caller has lasted for [Most]. Call it at the begin of a bubble, and stop
// before its end.
func Bound(test string) (stop func()) {
	timer := time.AfterFunc(Most, func() {
		panic(fmt.Sprintf("%s has lasted for %s of fake time: it waits for something that never comes", test, Most))
	})
	return func() { timer.Stop() }
}
