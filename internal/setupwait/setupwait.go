// Package setupwait has the pauses of a start that waits for tables, topics or rights, and the log
// lines of a problem that lasts.
package setupwait

import "time"

// Default is the wait of a runner or a relay without SetupWait. Another process may just create the
// tables or topics, and brokers do not know a new topic at once.
const Default = 3 * time.Second

// The bounds of a pause. The end of the wait may come before the lower one.
const (
	least = 250 * time.Millisecond
	most  = 5 * time.Second
)

// Pause returns the pause before the next look, after a part of the wait. A pause is as long as the
// wait so far, so each pause doubles the wait. The looks come after 0, 0.25, 0.5, 1, 2, 4 and 8 s,
// then every 5 s. No pause is longer than the rest of the wait. The result is false when the wait
// is over.
func Pause(waited, wait time.Duration) (d time.Duration, again bool) {
	if waited >= wait {
		return 0, false
	}
	return min(max(waited, least), most, wait-waited), true
}
