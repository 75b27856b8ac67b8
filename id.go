package idem

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/identity"
)

// Extractor finds the ID, the type or the tenant of an event in a message. Create extractors with
// the functions of this package, such as [FromHeader] or [FromFunc]. The zero value is invalid.
//
// An extractor uses only the key, the headers and the value that the producer wrote, never topic,
// partition, offset or time of the delivery. Otherwise two copies of an event could have different
// IDs.
//
// The stores keep a text that describes the extractors of each event type. A consumer with other
// extractors does not start, because every event would be new for it; see [Processor.Register].
type Extractor struct{ x identity.Extractor }

// Extract returns the identity that m has. The error matches [ErrNotFound], [ErrAmbiguous],
// [ErrInvalid], or is an error of a function of [FromFunc].
//
// The zero value returns an error that matches [ErrInvalid].
func (e Extractor) Extract(m *Message) (string, error) {
	if e.x.Find == nil {
		return "", fmt.Errorf("%w: extractor is not set", ErrInvalid)
	}
	return e.x.Find(context.Background(), m)
}

// String returns the text that describes e in the stores. Empty for the zero value.
func (e Extractor) String() string { return e.x.Descriptor }

// The errors of an [Extractor], see package idemtype.
var (
	ErrNotFound  = idemtype.ErrNotFound
	ErrAmbiguous = idemtype.ErrAmbiguous
	ErrInvalid   = idemtype.ErrInvalid
)

// FromFunc returns an extractor that calls find, which must be safe for concurrent use. The stores
// keep the descriptor. Change the descriptor if, and only if, find returns another identity for the
// same message: FromFunc("payment_id without its prefix", find). An empty descriptor is an error of
// [NewProcessor].
//
// The result of find counts as a plain ID, also if find calls another extractor. So do not combine
// such an extractor with others by [FirstOf].
//
// find returns an error that matches [ErrNotFound] if the message has no identity, and
// [ErrAmbiguous] if it has several that differ. A mark such as [Unavailable] means the same as on
// an error of a handler. After any other error the message becomes a dead letter.
func FromFunc(descriptor string, find func(*Message) (string, error)) Extractor {
	if descriptor == "" || find == nil {
		return Extractor{}
	}
	return Extractor{identity.FromFunc(descriptor, find)}
}

// StandardID is the default extractor of event IDs. It looks for the CloudEvents headers ce_id and
// ce_source, the header event-id, and the JSON field event_id. If several of the three IDs are
// present, they must be equal; otherwise the error matches [ErrAmbiguous].
//
// CloudEvents makes only source and id together unique. So with ce_source the identity is "joined:"
// and the result of [dedup.Join] for both. If that is too long for a key, a hash stands in its
// place.
//
// A plain ID that begins with "joined:", "hashed:" or "plain:" gets "plain:" in front, so that it
// equals no other event's ID.
func StandardID() Extractor { return Extractor{identity.StandardID()} }

// LegacyStandardID is [StandardID] without "joined:" in front of joined IDs. An event of the source
// "order" with the ID 12345 then equals an event with the plain ID "order:12345". Use it only for a
// store that already has IDs in this form.
func LegacyStandardID() Extractor { return Extractor{identity.LegacyStandardID()} }

// StandardType is the default extractor of event types. It looks for the CloudEvents header
// ce_type, the header event-type, and the JSON field type. Those that are present must be equal.
func StandardType() Extractor { return Extractor{identity.StandardType()} }

// FromHeader returns an extractor of a header. A header that appears more than once is ambiguous,
// even with equal values, because clients differ in the one that they show.
func FromHeader(name string) Extractor { return Extractor{identity.FromHeader(name)} }

// FromKey returns an extractor of the Kafka key. A key usually names an entity, not an event: with
// the key as the ID, only the first order.updated of an order would be handled. Use FromKey if each
// event has a key of its own.
func FromKey() Extractor { return Extractor{identity.FromKey()} }

// FromJSON returns an extractor of a field of the value, which must be a JSON object. Dots separate
// the names of nested fields: FromJSON("order.id").
//
// The identity is a string as it is, or an integer as its text. Other numbers are ambiguous. Null
// and the empty string are not found. A field that appears twice is ambiguous.
func FromJSON(field string) Extractor { return Extractor{identity.FromJSON(field)} }

// FromValue returns an extractor of the whole value, for [Hashed]. Copies of an event must then be
// equal byte by byte. Use it only if the producer gives its events no ID.
func FromValue() Extractor { return Extractor{identity.FromValue()} }

// Fixed returns an extractor of a constant: a part of [Joined], or the [Type] of all events of a
// topic with one type.
func Fixed(s string) Extractor { return Extractor{identity.Fixed(s)} }

// FirstOf returns an extractor that tries several in turn and takes the first identity found. The
// others are not compared.
//
// If some find composite identities and others do not, the identity gets "joined:" or "hashed:" in
// front, as in [StandardID].
func FirstOf(all ...Extractor) Extractor { return compose(identity.FirstOf, all) }

// LegacyFirstOf is [FirstOf] without a word in front of composite identities. "order:12345" then is
// one event, whether Joined found two parts or another extractor found one ID. Use it only for a
// store that already has IDs in this form.
func LegacyFirstOf(all ...Extractor) Extractor { return compose(identity.LegacyFirstOf, all) }

// Joined returns an extractor of a composite identity, such as order and step: "12345:charge". All
// parts must be found. Different parts never give the same identity. An identity that is too long
// for a key is an error; use [Hashed].
func Joined(parts ...Extractor) Extractor { return compose(identity.Joined, parts) }

// Hashed returns an extractor that makes an identity of fixed length from parts of any length. All
// parts must be found.
func Hashed(parts ...Extractor) Extractor { return compose(identity.Hashed, parts) }

// compose returns the zero Extractor if a part is invalid.
func compose(of func(...identity.Extractor) identity.Extractor, parts []Extractor) Extractor {
	inner := make([]identity.Extractor, len(parts))
	for i, p := range parts {
		if p.x.Find == nil {
			return Extractor{}
		}
		inner[i] = p.x
	}
	return Extractor{of(inner...)}
}
