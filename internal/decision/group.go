package decision

import (
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// OfGroup reports whether err is the error of a handler in a group. After a COMMIT by SQL, the
// claims of events that did not run must be taken back. A single event is claimed again, and the
// answer tells.
func OfGroup(err error) bool {
	_, failed := errors.AsType[*dedup.GroupError](err)
	_, ended := errors.AsType[*dedup.TxEndedError](err)
	return failed || ended
}

// EndedBySQL returns err as the error of a transaction that the handler has ended by SQL. It
// matches [dedup.ErrTxEnded]. For a group it has a [dedup.TxEndedError], which names the events
// whose claims must be taken back (rule 12).
func EndedBySQL(store string, err error) error {
	if _, ok := errors.AsType[*dedup.TxEndedError](err); ok {
		return err
	}
	if group, ok := errors.AsType[*dedup.GroupError](err); ok {
		return fmt.Errorf("%s: %w: %w", store, &dedup.TxEndedError{Unrun: group.Unrun}, err)
	}
	if errors.Is(err, dedup.ErrTxEnded) {
		return err
	}
	return fmt.Errorf("%s: %w: %w", store, dedup.ErrTxEnded, err)
}

// NotRuledOut adds to the error of a group that the store could not find out about a COMMIT. If all
// events of the group ran, no claim is in doubt.
func NotRuledOut(err, failed error) error {
	if !anyUnrun(err) {
		return fmt.Errorf("%w; a COMMIT as SQL before is not ruled out: %w", err, failed)
	}
	return fmt.Errorf("%w; a COMMIT as SQL before is not ruled out, and %w: %w", err,
		dedup.ErrClaimsInDoubt, failed)
}

// NotTakenBack adds to the error of a group that claims behind a COMMIT may have stayed.
func NotTakenBack(err, failed error) error {
	return fmt.Errorf("%w; %w: %w (%w)", err, dedup.ErrClaimsInDoubt, failed,
		dedup.ErrUnavailable)
}

// anyUnrun reports whether err names an event that did not run.
func anyUnrun(err error) bool {
	if ended, ok := errors.AsType[*dedup.TxEndedError](err); ok {
		return len(ended.Unrun) > 0
	}
	group, ok := errors.AsType[*dedup.GroupError](err)
	return ok && len(group.Unrun) > 0
}
