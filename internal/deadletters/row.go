package deadletters

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/jsontime"
)

// Row is a dead letter in a list, without the value. Texts of producers and handlers are unchanged,
// with control characters and markup (G-04). A dead letter without identity has no Scope; Type and
// ID are the parts that were found.
type Row struct {
	Record     string        `json:"record"` // partition/offset
	Topic      string        `json:"topic"`
	Failed     jsontime.Time `json:"last_failure"`
	Class      idem.Class    `json:"class,omitempty"`
	Tenant     string        `json:"tenant,omitempty"`
	Scope      string        `json:"scope,omitempty"`
	Type       string        `json:"type,omitempty"`
	ID         string        `json:"event_id,omitempty"`
	Origin     string        `json:"origin,omitempty"` // topic/partition/offset
	Group      string        `json:"group,omitempty"`
	Attempts   int           `json:"attempts"`
	Generation uint32        `json:"generation"`
	Replays    uint32        `json:"replays"`
	Error      string        `json:"error,omitempty"`
	Omitted    bool          `json:"value_omitted,omitempty"`
	Problem    string        `json:"problem,omitempty"` // why it is no dead letter

	// Verdict, Action and Note are set in plans and results of replays only.
	Verdict Verdict `json:"verdict,omitempty"`
	Action  string  `json:"action,omitempty"`
	Note    string  `json:"note,omitempty"`
}

// Row is the dead letter in a list.
func (l *Found) Row() Row {
	row := Row{Record: l.Place.String(), Topic: l.Topic, Failed: jsontime.Time{Time: l.Failed().UTC()}}
	if l.DeadLetter == nil {
		row.Problem = l.Err.Error()
		return row
	}
	t := l.DeadLetter
	row.Class, row.Error, row.Omitted, row.Group = t.Class, t.Error, t.Omitted, t.Group
	row.Attempts, row.Generation, row.Replays = t.Attempts, t.Position.Generation, t.Replays
	row.Tenant, row.Scope = t.Key.Tenant, t.Key.Scope
	row.Type, row.ID = cmp.Or(t.Key.Type, t.Type), cmp.Or(t.Key.ID, t.ID)
	row.Origin = fmt.Sprintf("%s/%d/%d", t.Message.Topic, t.Message.Partition, t.Message.Offset)
	return row
}

// Row is the dead letter in a list, with its verdict.
func (j *Judged) Row() Row {
	row := j.Found.Row()
	row.Verdict, row.Action, row.Note = j.Verdict, j.Action.String(), j.Note
	return row
}

// Detail is all of a dead letter.
type Detail struct {
	Row
	First   jsontime.Time `json:"first_failure"`
	Key     Bytes         `json:"kafka_key"`
	Size    int           `json:"size"`
	Headers []Header      `json:"headers"` // as they are in the topic
	Payload *Bytes        `json:"payload,omitempty"`
}

// Detail returns all fields of the dead letter, with the value only if payload is true. A value may
// contain confidential data (G-04).
func (l *Found) Detail(payload bool) Detail {
	detail := Detail{Row: l.Row(), Key: BytesOf(l.Record.Key), Size: len(l.Record.Value)}
	if l.DeadLetter != nil {
		detail.First.Time = l.DeadLetter.FirstFailure
	}
	for _, h := range l.Record.Headers {
		detail.Headers = append(detail.Headers, Header{h.Key, BytesOf(h.Value)})
	}
	if payload {
		p := BytesOf(l.Record.Value)
		detail.Payload = &p
	}
	return detail
}

// Header is a header of a record.
type Header struct {
	Key string `json:"key"`
	Bytes
}

// Bytes are text where that is possible. The zero value is the empty text, which is not null.
type Bytes struct {
	Null   bool   `json:"null,omitempty"`
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"` // not valid UTF-8
}

// BytesOf returns b as text, in base64, or as null. b is not kept.
func BytesOf(b []byte) Bytes {
	switch {
	case b == nil:
		return Bytes{Null: true}
	case utf8.Valid(b):
		return Bytes{Text: string(b)}
	default:
		return Bytes{Base64: base64.StdEncoding.EncodeToString(b)}
	}
}
