package engine

import (
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// This file is about copies of dead letters with a value that an operator has edited.

// editedFrom returns the hash of the original value of an edited copy, for the next dead letter or
// copy of the event.
func (t *task) editedFrom() string {
	if t.copied == nil {
		return ""
	}
	return t.copied.Edited
}

// replays returns how often the event was replayed.
func (t *task) replays() uint32 {
	if t.copied == nil {
		return 0
	}
	return t.copied.Replays
}

// editedIdentity refuses an edited copy that has another identity than its dead letter. Such a copy
// would have the effect of another event, and the event of the dead letter would never run.
func (t *task) editedIdentity(key dedup.Key) error {
	c := t.copied
	if t.editedFrom() == "" || c.Key.ID == "" || c.Key == key {
		return nil
	}
	t.id = c.Key.ID // for people who read the dead letter
	return fmt.Errorf("the edited value has the identity %s, and its dead letter has %s", key, c.Key)
}
