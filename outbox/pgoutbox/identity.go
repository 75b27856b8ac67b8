package pgoutbox

import (
	"fmt"

	"github.com/idem-go/idem/outbox"
)

// identity is the type and ID by which consumers know an event.
type identity struct{ kind, id string }

func identityOf(e *outbox.Entry) identity { return identity{e.Type, e.ID} }

// identities are the events of one transaction, each with its topic and key.
type identities map[identity]outbox.Aggregate

// add adds all entries, or none. The error matches [outbox.ErrSameID].
func (ids identities) add(entries []outbox.Entry) error {
	for i := range entries {
		e := &entries[i]
		first, taken := ids[identityOf(e)]
		if !taken {
			ids[identityOf(e)] = outbox.Aggregate{Topic: e.Topic, Key: e.Key}
			continue
		}
		ids.remove(entries[:i])
		return fmt.Errorf("%w: %.100q of type %.100q, for topic %q with key %.100q "+
			"and for topic %q with key %.100q: consumers would drop the second; "+
			"give them different values of Entry.Name, or leave one out",
			outbox.ErrSameID, e.ID, e.Type, first.Topic, first.Key, e.Topic, e.Key)
	}
	return nil
}

func (ids identities) remove(entries []outbox.Entry) {
	for i := range entries {
		delete(ids, identityOf(&entries[i]))
	}
}
