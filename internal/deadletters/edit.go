package deadletters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
)

// Edit has the hashes of an edited value, for the audit log.
type Edit struct {
	// Before and After are hashes of [deadletter.ValueHash].
	Before, After string
}

// The reasons against an edit.
var (
	errNull    = errors.New("a null value is not edited, and no value becomes null")
	errOmitted = errors.New("the dead letter has no value to edit")
	errNotJSON = errors.New("the value was JSON, and the edited value is not")
)

// CheckEdit reports why a value may not replace the value of a dead letter. Only a value may be
// edited. A value that was JSON must remain JSON, and the event must keep its identity.
//
// The identity is compared as handlers without options find it. A consumer compares the identity of
// its own handlers before it runs an edited copy.
func CheckEdit(l *deadletter.Event, value []byte) error {
	before := l.Message.Value
	switch {
	case l.Omitted:
		return errOmitted
	case before == nil || value == nil:
		return errNull
	case json.Valid(before) && !json.Valid(value):
		return errNotJSON
	}
	after := l.WithValue(value).Message
	for _, part := range []struct {
		name  string
		place idem.Extractor
		found string // in the dead letter
	}{{"event ID", idem.StandardID(), l.ID}, {"event type", idem.StandardType(), l.Type}} {
		now, err := part.place.Extract(after)
		was, wasErr := part.place.Extract(l.Message)
		if wasErr != nil { // the value had none, perhaps because the value was broken
			if was = part.found; was == "" || err != nil {
				continue
			}
		}
		if l.Key.ID != "" && !strings.Contains(part.found, was) {
			continue // the handler finds the identity in other places
		}
		if err != nil {
			return fmt.Errorf("the edited value has no %s any longer: %w", part.name, err)
		}
		if was != now {
			return fmt.Errorf("the edited value has the %s %q instead of %q: "+
				"another event must come from its producer", part.name, now, was)
		}
	}
	return nil
}

// exported applies the line of a file to a dead letter that may be replayed. The line must have all
// fields of the record in the topic. An edited value takes the place of the original one.
func (j *Judged) exported(x *Exported) *Edit {
	if names := x.Differs(j.Found); len(names) > 0 {
		j.Verdict, j.Action = SeenChanged, ActSkip
		j.Note = "the line and the record in the topic differ in " + strings.Join(names, ", ")
		return x.edit()
	}
	value, err := x.Value.Bytes()
	if err != nil {
		j.refuseEdit(err)
		return nil
	}
	before := j.Record.Value
	if bytes.Equal(before, value) && (before == nil) == (value == nil) {
		return nil
	}
	edit := &Edit{Before: x.SHA256, After: deadletter.ValueHash(value)}
	switch {
	case j.DeadLetter == nil || j.Action == ActSkip: // left alone anyway, with the note why
		return edit
	case j.Action == ActUnblock:
		j.refuseEdit(errors.New("the event blocks its Kafka key, and the store has its value: " +
			"replay it unedited, or idem event skip"))
		return edit
	}
	if err := CheckEdit(j.DeadLetter, value); err != nil {
		j.refuseEdit(err)
		return edit
	}
	found := *j.Found
	found.DeadLetter = j.DeadLetter.WithValue(value)
	j.Found = &found
	return edit
}

func (j *Judged) refuseEdit(err error) {
	j.Verdict, j.Action, j.Note = SeenEdit, ActSkip, err.Error()
}

// edit returns the hashes of an edited value, by the line alone. It returns nil for the value of the
// export, and for a value that cannot be read.
func (x *Exported) edit() *Edit {
	value, err := x.Value.Bytes()
	if err != nil || !x.IsEdited() {
		return nil
	}
	return &Edit{Before: x.SHA256, After: deadletter.ValueHash(value)}
}

// IsEdited reports whether the value of the line is another one than at the export.
func (x *Exported) IsEdited() bool {
	value, err := x.Value.Bytes()
	return err != nil || deadletter.ValueHash(value) != x.SHA256
}
