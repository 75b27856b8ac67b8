package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// Event is the event of a dead letter or of a copy in a retry topic: its record and its history.
type Event struct {
	// Key is the key of the event. Zero if the record has no valid identity.
	Key dedup.Key
	// ID and Type are those of Key. Without Key they are the parts that were found, for people to
	// read. Either may be empty.
	ID, Type string
	// Group is the consumer group that wrote the dead letter or the copy.
	Group string
	// Message is the original record, with its topic, partition, offset and time. If the value was
	// omitted, Message has neither value nor headers.
	Message *idemtype.Message
	// Class and Error are the reason.
	Class idemtype.Class
	Error string
	// Attempts counts the failed runs, including those of a process that died.
	Attempts int
	// FirstFailure and LastFailure are zero without a failed run.
	FirstFailure, LastFailure time.Time
	// Position counts how often the event was reopened for a replay (Generation), and the delayed
	// retries since then (Retry).
	Position dedup.Position
	// Due is the earliest time of the attempt for which a copy was made. Zero: at once.
	Due time.Time
	// NotBefore is later than Due if an error asked for a longer wait. Zero: not set.
	NotBefore time.Time
	// Omitted reports that the record was too large to be copied. The original record may still be
	// in its topic.
	Omitted bool
	// Edited is the SHA-256 of the original value in hex, if an operator has edited the value. The
	// headers and the Kafka key are never edited. Empty: the value is the original one.
	Edited string
	// Replays counts how often the event was replayed. Unlike the generation of Position, the
	// number also counts replays of an event without identity, or without a record in the store.
	Replays uint32
}

// replays returns Replays. Dead letters of older releases have the generation only.
func (e *Event) replays() uint32 { return max(e.Replays, e.Position.Generation) }

// WithValue returns the event with a value that an operator has edited. e stays unchanged. The
// fields of the identity stay, so a consumer refuses a copy with a value of another identity.
func (e *Event) WithValue(value []byte) *Event {
	edited, m := *e, *e.Message
	if e.Edited == "" {
		edited.Edited = ValueHash(e.Message.Value)
	}
	m.Value = value
	edited.Message = &m
	return &edited
}

// ValueHash returns the SHA-256 of a value in hex, as in [HeaderEdited]. A null value has the hash
// "null".
func ValueHash(value []byte) string {
	if value == nil {
		return "null"
	}
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:])
}

// Redrive returns the copy that lets the event of a dead letter run again. The message belongs to
// the retry topic of the group that wrote the dead letter; no other group reads that topic.
//
// position is the result of [dedup.Operator].Reopen for the key. Without a key, position is
// ignored: the copy gets the position of the copy that became the dead letter.
//
// Redrive returns an error if the value was omitted.
func (e *Event) Redrive(position dedup.Position) (*idemtype.Message, error) {
	if e.Omitted {
		m := e.Message
		return nil, fmt.Errorf("the dead letter has no value: it was too large, fetch it from %s/%d/%d",
			m.Topic, m.Partition, m.Offset)
	}
	if e.Key.ID == "" {
		position = e.Position
	}
	again := Event{
		Key: e.Key, Group: e.Group, Message: e.Message, Class: e.Class, Error: e.Error,
		FirstFailure: e.FirstFailure, LastFailure: e.LastFailure, Position: position,
		Edited: e.Edited, Replays: e.replays() + 1,
	}
	return again.Copy(0), nil
}
