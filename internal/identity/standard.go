package identity

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

const adviceID = "idem.ID(idem.FromHeader(...)) or another source"

// StandardID returns the default extractor of event IDs.
func StandardID() Extractor {
	usual := standard("ce_id", "event-id", "event_id", adviceID)
	find := func(m *idemtype.Message) (string, error) {
		id, source, ce, err := cloudEvent(m, usual)
		if err != nil || !ce {
			return Tagged(id, PlainForm), err
		}
		joined := dedup.Join(Tagged(source, PlainForm), Tagged(id, PlainForm))
		if len(wordJoined)+len(joined) > dedup.MaxPart {
			joined = shortened(joined)
		}
		return wordJoined + joined, nil
	}
	return Extractor{
		Find: withoutContext(find), Descriptor: "standard-id/2", Form: TaggedForm,
	}
}

// LegacyStandardID is StandardID without a word in front of joined IDs.
func LegacyStandardID() Extractor {
	usual := standard("ce_id", "event-id", "event_id", adviceID)
	return plainOf("standard-id/1", func(m *idemtype.Message) (string, error) {
		id, source, _, err := cloudEvent(m, usual)
		if _, sources := header(m, "ce_source"); err != nil || sources == 0 {
			return id, err
		}
		if _, ids := header(m, "ce_id"); ids == 0 {
			return id, nil
		}
		if joined := dedup.Join(source, id); len(joined) <= dedup.MaxPart {
			return joined, nil
		}
		return dedup.Hash(source, id), nil
	})
}

// StandardType returns the default extractor of event types.
func StandardType() Extractor {
	return ofBytes("standard-type/1", standard("ce_type", "event-type", "type",
		"idem.Type(idem.FromHeader(...)) or another source"))
}

// cloudEvent returns the ID of an event, and the source of a CloudEvent that has one.
func cloudEvent(
	m *idemtype.Message, find finder,
) (id, source string, ce bool, err error) {
	found, err := find(m)
	if err != nil {
		return "", "", false, err
	}
	id = string(found)
	from, sources := header(m, "ce_source")
	ceID, ids := header(m, "ce_id")
	switch {
	case sources == 0 || ids == 0:
		return id, "", false, nil
	case sources > 1:
		return "", "", false, fmt.Errorf("%w: header ce_source appears %d times",
			idemtype.ErrAmbiguous, sources)
	}
	// Joining and hashing would hide an invalid ID.
	if err := (dedup.Key{ID: id}).Validate(); err != nil {
		return "", "", false, fmt.Errorf("%w: header ce_id: %w", idemtype.ErrInvalid, err)
	}
	if !utf8.Valid(from) || bytes.IndexByte(from, 0) >= 0 {
		return "", "", false, fmt.Errorf(
			"%w: header ce_source is not valid UTF-8 or contains a NUL byte", idemtype.ErrInvalid)
	}
	return id, string(from), len(ceID) > 0, nil
}

// standard returns a function that looks in two headers and a JSON field. Those that are present
// must be equal.
func standard(ce, name, fieldName, advice string) finder {
	type source struct {
		name string
		find finder
	}
	sources := [...]source{
		{"header " + ce, FromHeader(ce).bytes},
		{"header " + name, FromHeader(name).bytes},
		{"JSON field " + fieldName, FromJSON(fieldName).bytes},
	}
	return func(m *idemtype.Message) ([]byte, error) {
		var found []byte
		where, isJSON := "", true
		for i := range sources {
			from := &sources[i]
			v, err := from.find(m)
			switch {
			case errors.Is(err, idemtype.ErrNotFound):
				isJSON = isJSON && !errors.Is(err, ErrNotJSON)
			case err != nil:
				return nil, err
			case where == "":
				found, where = v, from.name
			case !bytes.Equal(v, found):
				return nil, fmt.Errorf("%w: %s and %s disagree; choose one with %s",
					idemtype.ErrAmbiguous, where, from.name, advice)
			}
		}
		switch {
		case where == "" && !isJSON:
			return nil, fmt.Errorf("no header %s or %s, JSON field %s %w", ce, name, fieldName, ErrNotJSON)
		case where == "":
			return nil, fmt.Errorf("%w: no header %s or %s, no JSON field %s",
				idemtype.ErrNotFound, ce, name, fieldName)
		}
		return found, nil
	}
}
