package replay

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrRunning means that the replay runs already in this process.
	ErrRunning = errors.New("the replay is running")
	// ErrClosed means that the replay was closed.
	ErrClosed = errors.New("the replay is closed")
	// ErrTooManyFailed means that one event more than [Config].MaxFailed would have been given up.
	// That event is not settled, and runs again when the replay continues.
	ErrTooManyFailed = errors.New("too many events have failed")
	// ErrOpenTransaction means that a transaction before the end of the plan is open and did not
	// end in time.
	ErrOpenTransaction = errors.New("a transaction is open before the end of the plan")
)

// DeletedError means that Kafka has deleted records of the window, or may have. Set
// [Config].SkipDeleted to replay the others.
type DeletedError struct {
	// Partitions are the plans of the partitions, see [PartitionPlan].Deleted and MaybeDeleted. For
	// records that were deleted during the replay, First and End are the deleted offsets.
	Partitions []PartitionPlan
}

// Error names the partitions.
func (e *DeletedError) Error() string {
	var text []string
	for _, p := range e.Partitions[:min(len(e.Partitions), 10)] {
		if p.Deleted > 0 {
			text = append(text, fmt.Sprintf("%s (%d offsets)", p.place(), p.Deleted))
		} else {
			text = append(text, p.place().String()+" (perhaps)")
		}
	}
	if more := len(e.Partitions) - len(text); more > 0 {
		text = append(text, fmt.Sprintf("and %d partitions more", more))
	}
	return "records of the window are deleted: " + strings.Join(text, ", ") +
		": set SkipDeleted to replay the others"
}
