package deadletter

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// ErrNotDeadLetter means that a record does not have the headers of a dead letter.
var ErrNotDeadLetter = errors.New("not a dead letter of Idem")

// Parse reads a record of a dead-letter topic. A client with the right to write to the topic can
// forge the headers. The error matches [ErrNotDeadLetter].
func Parse(m *idemtype.Message) (*Event, error) {
	e, err := ParseCopy(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotDeadLetter, err)
	}
	return e, nil
}

// ParseCopy reads a record of a retry topic.
func ParseCopy(m *idemtype.Message) (*Event, error) {
	r := reader{m: m}
	e := &Event{
		Message: &idemtype.Message{
			Topic:     r.text(HeaderTopic),
			Partition: int32(r.number(HeaderPartition, 31, true)),
			Offset:    int64(r.number(HeaderOffset, 63, true)),
			Time:      r.time(HeaderTime, true),
			Key:       m.Key, Value: m.Value, Headers: restored(m.Headers),
		},
		Group:        r.text(HeaderGroup),
		Class:        idemtype.Class(r.optional(HeaderErrorClass)),
		Error:        r.optional(HeaderError),
		Attempts:     int(r.number(HeaderAttempts, 31, false)),
		FirstFailure: r.time(HeaderFirstFailure, false),
		LastFailure:  r.time(HeaderLastFailure, false),
		Position: dedup.Position{
			Generation: uint32(r.number(HeaderGeneration, 32, false)),
			Retry:      uint32(r.number(HeaderRetry, 32, false)),
		},
		Edited: r.optional(HeaderEdited), Replays: uint32(r.number(HeaderReplays, 31, false)),
		Due: r.time(HeaderDue, false), NotBefore: r.time(HeaderNotBefore, false),
	}
	_, e.Omitted = headerOf(m, HeaderValueOmitted)
	e.Replays = e.replays()
	r.identity(e)
	return e, r.err
}

// Due returns the time before which the copy m must not run. ok is false without such a time.
func Due(m *idemtype.Message) (due time.Time, ok bool) {
	text, _ := headerOf(m, HeaderDue)
	due, err := time.Parse(time.RFC3339Nano, text)
	return due, err == nil
}

// reader reads headers and keeps the first error.
type reader struct {
	m   *idemtype.Message
	err error
}

// identity reads the key of e, or the parts of a key that are known.
func (r *reader) identity(e *Event) {
	id, typ := r.optional(HeaderEventID), r.optional(HeaderEventType)
	scope, identified := headerOf(r.m, HeaderScope)
	switch {
	case identified && id != "":
		e.Key = dedup.Key{Tenant: r.optional(HeaderTenant), Scope: scope, Type: typ, ID: id}
		e.ID, e.Type = id, typ
		if err := e.Key.Validate(); err != nil {
			r.fail(HeaderEventID, err)
		}
	case !identified && (dedup.Key{Type: typ, ID: cmp.Or(id, "-")}).Validate() == nil:
		e.ID, e.Type = id, typ
	}
}

func (r *reader) fail(name string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("header %s: %w", name, err)
	}
}

func (r *reader) optional(name string) string {
	text, _ := headerOf(r.m, name)
	return text
}

func (r *reader) text(name string) string {
	text, ok := headerOf(r.m, name)
	if !ok || text == "" {
		r.fail(name, errors.New("missing"))
	}
	return text
}

func (r *reader) number(name string, bits int, required bool) uint64 {
	text, ok := headerOf(r.m, name)
	if !ok {
		if required {
			r.fail(name, errors.New("missing"))
		}
		return 0
	}
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		r.fail(name, errors.New("not a number in range"))
	}
	return n
}

func (r *reader) time(name string, required bool) time.Time {
	text, ok := headerOf(r.m, name)
	if !ok {
		if required {
			r.fail(name, errors.New("missing"))
		}
		return time.Time{}
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil { // see stamp
		return time.UnixMilli(ms).UTC()
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		r.fail(name, errors.New("not a time"))
	}
	return t
}
