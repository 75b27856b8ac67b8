package outboxrow

import (
	"fmt"

	"github.com/idem-go/idem/outbox"
)

// identity is the type and ID by which consumers know an event.
type identity struct{ kind, id string }

func identityOf(e *outbox.Entry) identity { return identity{e.Type, e.ID} }

// Identities are the events of one transaction, each with its topic and key.
type Identities map[identity]outbox.Aggregate

// Add adds all entries. If two events have the same type and ID, Add adds no entry, and its error
// matches [outbox.ErrSameID].
func (ids Identities) Add(entries []outbox.Entry) error {
	for i := range entries {
		e := &entries[i]
		first, taken := ids[identityOf(e)]
		if !taken {
			ids[identityOf(e)] = outbox.Aggregate{Topic: e.Topic, Key: e.Key}
			continue
		}
		for j := range entries[:i] {
			ids.Remove(&entries[j])
		}
		return fmt.Errorf("%w: %.100q of type %.100q, for topic %q with key %.100q "+
			"and for topic %q with key %.100q: consumers would drop the second; "+
			"give them different values of Entry.Name, or leave one out",
			outbox.ErrSameID, e.ID, e.Type, first.Topic, first.Key, e.Topic, e.Key)
	}
	return nil
}

// Remove removes one entry.
func (ids Identities) Remove(e *outbox.Entry) { delete(ids, identityOf(e)) }
