package idem

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
)

// IDFunc finds the identity, or the type, of an event in a message. It returns an error that matches [ErrNotFound] if the message has
// none where it looks, and one that matches [ErrAmbiguous] if it has several that disagree. It must depend on nothing but
// what the producer wrote: not on topic, partition, offset or time of the delivery. An error with a mark, such as
// [Unavailable] of a registry that is down, means what it means on an error of a handler. Any other error dead-letters the
// record at once.
//
// Where an IDFunc looks goes on record in the store, in words, so that a change of it is found before it makes every
// event new again (rule 7, see [Processor.Register]). A function of your own is known by its name only, a function literal
// by the name of the function around it: a change inside it is not seen. Give it words of its own with [Described].
type IDFunc func(*Message) (string, error)

// The errors of an [IDFunc].
var (
	ErrNotFound  = errors.New("not found")
	ErrAmbiguous = errors.New("ambiguous")
	ErrInvalid   = errors.New("invalid") // there is one, and no store can hold it
)

// StandardID is the default identity: the CloudEvents headers ce_id and ce_source, the header event-id, the JSON field
// event_id, in this order. With ce_source the identity is both together, as CloudEvents makes only source + id unique
// (rule 7): "joined:" and what [dedup.Join] makes of them, or a hash of that if it is too long for a key. Where several of the
// three IDs are present they must be equal, else the error matches [ErrAmbiguous]: one path may add headers that another
// does not, and taking just the first would make two events of one.
//
// A plain ID that begins with "joined:", "hashed:" or "plain:" has "plain:" in front, so that it is no other event's.
// [LegacyStandardID] is the form of releases before that.
//
//go:noinline
func StandardID() IDFunc {
	find := standard("ce_id", "event-id", "event_id", "idem.ID(idem.FromHeader(...)) or another source")
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("standard-id/2", formTagged)
		}
		id, source, ce, err := cloudEvent(m, find)
		if err != nil || !ce {
			return tagged(id, formPlain), err
		}
		joined := dedup.Join(tagged(source, formPlain), tagged(id, formPlain))
		if len(wordJoined)+len(joined) > dedup.MaxPart {
			joined = shortened(joined)
		}
		return wordJoined + joined, nil
	}
}

// LegacyStandardID is [StandardID] as it was before its joined identities had a word in front: an event of the source "order" with
// the ID 12345 and a plain ID "order:12345" are one event to it. It is for consumers whose stores know CloudEvents with a source
// under the old form, and which must go on without new identities. It is what their stores have on record.
//
//go:noinline
func LegacyStandardID() IDFunc {
	find := standard("ce_id", "event-id", "event_id", "idem.ID(idem.FromHeader(...)) or another source")
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("standard-id/1", formPlain)
		}
		id, source, _, err := cloudEvent(m, find)
		if _, sources := m.header("ce_source"); err != nil || sources == 0 {
			return id, err
		}
		if _, ids := m.header("ce_id"); ids == 0 {
			return id, nil
		}
		if joined := dedup.Join(source, id); len(joined) <= dedup.MaxPart {
			return joined, nil
		}
		return dedup.Hash(source, id), nil
	}
}

// cloudEvent finds the ID of an event, and its source if it is a CloudEvent that says one.
func cloudEvent(m *Message, find IDFunc) (id, source string, ce bool, err error) {
	if id, err = find(m); err != nil {
		return "", "", false, err
	}
	from, sources := m.header("ce_source")
	ceID, ids := m.header("ce_id")
	switch {
	case sources == 0 || ids == 0:
		return id, "", false, nil
	case sources > 1:
		return "", "", false, fmt.Errorf("%w: header ce_source appears %d times", ErrAmbiguous, sources)
	}
	if err := (dedup.Key{ID: id}).Validate(); err != nil { // joined and hashed, nobody would see it
		return "", "", false, fmt.Errorf("%w: header ce_id: %w", ErrInvalid, err)
	}
	if !utf8.Valid(from) || bytes.IndexByte(from, 0) >= 0 {
		return "", "", false, fmt.Errorf("%w: header ce_source is not valid UTF-8 or contains a NUL byte", ErrInvalid)
	}
	return id, string(from), len(ceID) > 0, nil
}

// StandardType is the default type: the CloudEvents header ce_type, the header event-type, the JSON field type, in this
// order; where several are present they must be equal.
//
//go:noinline
func StandardType() IDFunc {
	find := standard("ce_type", "event-type", "type", "idem.Type(idem.FromHeader(...)) or another source")
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("standard-type/1", formPlain)
		}
		return find(m)
	}
}

// standard looks in two headers and a JSON field and wants all that are present to be equal.
func standard(ce, header, field, advice string) IDFunc {
	sources := [...]struct {
		name string
		find IDFunc
	}{{"header " + ce, FromHeader(ce)}, {"header " + header, FromHeader(header)}, {"JSON field " + field, FromJSON(field)}}
	return func(m *Message) (string, error) {
		found, where, isJSON := "", "", true
		for i := range sources {
			from := &sources[i]
			v, err := from.find(m)
			switch {
			case errors.Is(err, ErrNotFound):
				isJSON = isJSON && !errors.Is(err, errNotJSON)
			case err != nil:
				return "", err
			case where == "":
				found, where = v, from.name
			case v != found:
				return "", fmt.Errorf("%w: %s and %s disagree; choose one with %s", ErrAmbiguous, where, from.name, advice)
			}
		}
		switch {
		case where == "" && !isJSON:
			return "", fmt.Errorf("no header %s or %s, JSON field %s %w", ce, header, field, errNotJSON)
		case where == "":
			return "", fmt.Errorf("%w: no header %s or %s, no JSON field %s", ErrNotFound, ce, header, field)
		}
		return found, nil
	}
}

// FromHeader finds the value of a header. A header that appears more than once is ambiguous, even with equal values:
// clients differ in which one they show.
//
//go:noinline
func FromHeader(name string) IDFunc {
	missing := fmt.Errorf("header %s %w", name, ErrNotFound) // made once: looking where nothing is must cost nothing
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("header("+strconv.Quote(name)+")", formPlain)
		}
		v, n := m.header(name)
		switch {
		case n == 0 || n == 1 && len(v) == 0:
			return "", missing
		case n > 1:
			return "", fmt.Errorf("%w: header %s appears %d times", ErrAmbiguous, name, n)
		}
		return string(v), nil
	}
}

// header returns the first header of that name, and how many there are.
func (m *Message) header(name string) (value []byte, n int) {
	for i := range m.Headers {
		if m.Headers[i].Key == name {
			if n == 0 {
				value = m.Headers[i].Value
			}
			n++
		}
	}
	return value, n
}

// FromKey takes the Kafka key. A key usually names an entity, not an event: with it as the ID only the first
// order.updated of an order would ever be handled (rule 59). Use it where each event has a key of its own.
//
//go:noinline
func FromKey() IDFunc {
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("key", formPlain)
		}
		if len(m.Key) == 0 {
			return "", fmt.Errorf("kafka key %w", ErrNotFound)
		}
		return string(m.Key), nil
	}
}

// FromJSON finds a field of the value, which must be a JSON object. Names of nested fields are separated by dots:
// FromJSON("order.id"). Strings count as they are; numbers as their text, integers only, so that large ones do not
// collide (rule 7). Null and the empty string are not found. A field that appears twice is ambiguous.
//
//go:noinline
func FromJSON(field string) IDFunc {
	path := strings.Split(field, ".")
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("json("+strconv.Quote(field)+")", formPlain)
		}
		raw, err := jsonField(m.Value, path)
		if err != nil {
			return "", fmt.Errorf("JSON field %s: %w", field, err)
		}
		return jsonText(field, raw)
	}
}

func jsonText(field string, raw json.RawMessage) (string, error) {
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")) || bytes.Equal(raw, []byte(`""`)):
		return "", fmt.Errorf("JSON field %s %w", field, ErrNotFound)
	case raw[0] == '"':
		if inner := raw[1 : len(raw)-1]; plain(inner) {
			return string(inner), nil
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", fmt.Errorf("JSON field %s: %w: %w", field, ErrNotFound, err)
		}
		// encoding/json puts U+FFFD in the place of bytes that are not UTF-8 and of half surrogates: different IDs would
		// become one, and all but the first event be taken for duplicates (P-22).
		if strings.ContainsRune(s, utf8.RuneError) {
			return "", fmt.Errorf("%w: JSON field %s is not valid Unicode", ErrInvalid, field)
		}
		return s, nil
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		if bytes.ContainsAny(raw, ".eE") {
			return "", fmt.Errorf("%w: JSON field %s is not an integer", ErrAmbiguous, field)
		}
		return string(raw), nil
	}
	return "", fmt.Errorf("JSON field %s %w: it is neither a string nor an integer", field, ErrNotFound)
}

// plain reports whether the inside of a JSON string means what is written: ASCII without escapes.
func plain(inner []byte) bool {
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

// FirstOf tries several in turn and takes the first that finds something: the way to declare a fallback. Unlike in
// [StandardID] the others are not compared.
//
// Where some of fns find composite identities and others do not, their results are told apart as in [StandardID]: what [Joined]
// found has "joined:" in front, what [Hashed] found has "hashed:". [LegacyFirstOf] is the form of releases before that.
//
//go:noinline
func FirstOf(fns ...IDFunc) IDFunc {
	forms := formsOf(fns)
	mixed := differ(forms)
	return func(m *Message) (string, error) {
		if m.trace != nil {
			if mixed {
				return m.described("first/2("+recipeWords(fns)+")", formTagged)
			}
			return m.described("first("+recipeWords(fns)+")", commonForm(forms))
		}
		i, v, err := firstFound(m, fns)
		if err == nil && mixed {
			v = tagged(v, forms[i])
		}
		return v, err
	}
}

// LegacyFirstOf is [FirstOf] as it was before it told composite identities from others: "order:12345" is one event to
// LegacyFirstOf(Joined(a, b), c), whether two parts or one ID were found. It is what the stores of consumers with such a recipe
// have on record, for those which must go on without new identities.
//
//go:noinline
func LegacyFirstOf(fns ...IDFunc) IDFunc {
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("first("+recipeWords(fns)+")", formPlain)
		}
		_, v, err := firstFound(m, fns)
		return v, err
	}
}

// firstFound returns which function found something.
func firstFound(m *Message, fns []IDFunc) (i int, v string, err error) {
	err = fmt.Errorf("identity %w", ErrNotFound)
	isJSON := true
	for i, f := range fns {
		if v, err = f(m); err == nil || !errors.Is(err, ErrNotFound) {
			return i, v, err
		}
		isJSON = isJSON && !errors.Is(err, errNotJSON)
	}
	if !isJSON && !errors.Is(err, errNotJSON) {
		err = fmt.Errorf("%w, and before: %w", err, errNotJSON)
	}
	return 0, "", err
}

// Joined makes a composite identity, such as order and step: "12345:charge". All parts must be found. It is injective: a part that is
// joined or hashed itself has "joined:" or "hashed:" in front, and a plain part that begins with one of these words has "plain:".
// Of a part that is joined itself and too long for a key there is a hash, as of [StandardID]'s. What is too long as a whole is refused.
//
//go:noinline
func Joined(fns ...IDFunc) IDFunc {
	forms := formsOf(fns)
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("joined"+versionOf(forms)+"("+recipeWords(fns)+")", formJoined)
		}
		parts, err := findAll(m, fns, forms)
		return dedup.Join(parts...), err
	}
}

// Hashed makes a deterministic identity of fixed length out of parts of any length. All parts must be found. They are told apart as those
// of [Joined].
//
//go:noinline
func Hashed(fns ...IDFunc) IDFunc {
	forms := formsOf(fns)
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("hashed"+versionOf(forms)+"("+recipeWords(fns)+")", formHashed)
		}
		parts, err := findAll(m, fns, forms)
		if err != nil {
			return "", err
		}
		return dedup.Hash(parts...), nil
	}
}

// findAll finds the parts of a composite identity, each in a text that no part of another form has.
func findAll(m *Message, fns []IDFunc, forms []form) ([]string, error) {
	parts := make([]string, len(fns))
	for i, f := range fns {
		v, err := f(m)
		if err != nil {
			return nil, err
		}
		parts[i] = tagged(v, forms[i])
		if joined, ok := strings.CutPrefix(parts[i], wordJoined); ok && len(parts[i]) > dedup.MaxPart { // as StandardID has it
			parts[i] = wordJoined + shortened(joined)
		}
	}
	return parts, nil
}

// FromValue takes the whole value, for [Hashed]: copies must then be equal byte by byte. A last resort for producers
// that name their events in no way.
//
//go:noinline
func FromValue() IDFunc {
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("value", formPlain)
		}
		if len(m.Value) == 0 {
			return "", fmt.Errorf("value %w", ErrNotFound)
		}
		return string(m.Value), nil
	}
}

// Fixed is always s: a part of [Joined], or the [Type] of every event of a topic that carries one kind only.
//
//go:noinline
func Fixed(s string) IDFunc {
	return func(m *Message) (string, error) {
		if m.trace != nil {
			return m.described("fixed("+strconv.Quote(s)+")", formPlain)
		}
		return s, nil
	}
}

// Described is f under words of your own: they go on record in place of its name. Change them when, and only when, f
// finds another identity in the same message: Described("payment_id without its prefix", f).
//
//go:noinline
func Described(words string, f IDFunc) IDFunc {
	of := formOf(f)
	return func(m *Message) (string, error) {
		switch {
		case m.trace == nil:
			return f(m)
		case of == formTagged: // as of StandardID, whose form has changed
			return m.described("described/2("+strconv.Quote(words)+")", of)
		default:
			return m.described("described("+strconv.Quote(words)+")", of)
		}
	}
}
