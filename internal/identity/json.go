package identity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idem/idemtype"
)

// This file finds fields of JSON objects in a twentieth of the time of encoding/json. A consumer
// looks for the type and the ID in every delivery, duplicates included. FuzzJSONMember compares the
// results with those of encoding/json.

// field follows the path through nested objects. A value that is not a JSON object has no fields.
func field(data []byte, path []string) (json.RawMessage, error) {
	for _, name := range path {
		next, err := member(data, name)
		if err != nil {
			return nil, err
		}
		data = next
	}
	return data, nil
}

// ErrNotJSON means that the value of a message is not valid JSON. ErrNotJSON matches
// [idemtype.ErrNotFound].
var ErrNotJSON = fmt.Errorf("%w: the value is not valid JSON", idemtype.ErrNotFound)

var (
	errNoObject = fmt.Errorf("%w: the value is not a JSON object", idemtype.ErrNotFound)
	errNoValue  = fmt.Errorf("%w: the value is empty", idemtype.ErrNotFound)
)

// member returns the value of a member of a JSON object. The object is read to its end, because a
// name that appears twice is ambiguous and a truncated value has no identity.
func member(data []byte, name string) (found json.RawMessage, err error) {
	s := scanner{data: data}
	s.space()
	if !s.is('{') {
		return nil, s.withoutFields()
	}
	s.space()
	if s.is('}') {
		return nil, idemtype.ErrNotFound
	}
	for {
		key, ok := s.str()
		s.space()
		if !ok || !s.is(':') {
			return nil, ErrNotJSON
		}
		s.space()
		from := s.at
		if !s.value(0) {
			return nil, ErrNotJSON
		}
		if sameName(key, name) {
			if found != nil {
				return nil, fmt.Errorf("%w: it appears more than once", idemtype.ErrAmbiguous)
			}
			found = data[from:s.at:s.at]
		}
		s.space()
		switch {
		case s.is(','):
			s.space()
		case s.is('}'):
			if found == nil {
				return nil, idemtype.ErrNotFound
			}
			return found, nil
		default:
			return nil, ErrNotJSON
		}
	}
}

// withoutFields returns the error for data that does not begin like an object.
func (s *scanner) withoutFields() error {
	if s.at == len(s.data) {
		return errNoValue
	}
	valid := s.value(0)
	if s.space(); !valid || s.at < len(s.data) {
		return ErrNotJSON
	}
	return errNoObject
}

// sameName compares a name as written, with quotes, to one in plain text.
func sameName(quoted []byte, name string) bool {
	inner := quoted[1 : len(quoted)-1]
	if string(inner) == name {
		return true
	}
	for _, c := range inner {
		if c == '\\' || c >= 0x80 { // an escape, or bytes that encoding/json may replace
			var plain string
			return json.Unmarshal(quoted, &plain) == nil && plain == name
		}
	}
	return false
}

// scanner reads JSON. Each method moves over the element of its name and reports whether the
// element was there.
type scanner struct {
	data []byte
	at   int
}

// maxDepth is how deep values may be nested, as in encoding/json.
const maxDepth = 10000

func (s *scanner) is(c byte) bool {
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) value(depth int) bool {
	if s.at >= len(s.data) || depth > maxDepth {
		return false
	}
	switch s.data[s.at] {
	case '"':
		_, ok := s.str()
		return ok
	case '{':
		return s.list('}', depth, true)
	case '[':
		return s.list(']', depth, false)
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

// list moves over an object or an array.
func (s *scanner) list(end byte, depth int, named bool) bool {
	s.at++
	s.space()
	if s.is(end) {
		return true
	}
	for {
		if named {
			_, ok := s.str()
			s.space()
			if !ok || !s.is(':') {
				return false
			}
			s.space()
		}
		if !s.value(depth + 1) {
			return false
		}
		s.space()
		switch {
		case s.is(','):
			s.space()
		case s.is(end):
			return true
		default:
			return false
		}
	}
}

// str moves over a string and returns the string with quotes.
func (s *scanner) str() (quoted []byte, ok bool) {
	from := s.at
	if !s.is('"') {
		return nil, false
	}
	for s.at < len(s.data) {
		c := s.data[s.at]
		s.at++
		switch {
		case c == '"':
			return s.data[from:s.at], true
		case c < ' ':
			return nil, false
		case c == '\\' && !s.escape():
			return nil, false
		}
	}
	return nil, false
}

func (s *scanner) escape() bool {
	if s.at >= len(s.data) {
		return false
	}
	c := s.data[s.at]
	s.at++
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			if s.at >= len(s.data) || !hex(s.data[s.at]) {
				return false
			}
			s.at++
		}
		return true
	}
	return false
}

func hex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func (s *scanner) word(w string) bool {
	if len(s.data)-s.at < len(w) || string(s.data[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

func (s *scanner) number() bool {
	s.is('-')
	if !s.is('0') && !s.digits() {
		return false
	}
	if s.is('.') && !s.digits() {
		return false
	}
	if s.is('e') || s.is('E') {
		if !s.is('+') {
			s.is('-')
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	from := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	return s.at > from
}

// fieldText returns the text of a field that is an identity. The text may be a part of raw.
func fieldText(field string, raw json.RawMessage) ([]byte, error) {
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")) || bytes.Equal(raw, []byte(`""`)):
		return nil, fmt.Errorf("JSON field %s %w", field, idemtype.ErrNotFound)
	case raw[0] == '"':
		if inner := raw[1 : len(raw)-1]; plain(inner) {
			return inner, nil
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("JSON field %s: %w: %w", field, idemtype.ErrNotFound, err)
		}
		// encoding/json replaces invalid UTF-8 and half surrogates with U+FFFD. Different IDs would
		// become equal, and events would be skipped as duplicates (P-22).
		if strings.ContainsRune(s, utf8.RuneError) {
			return nil, fmt.Errorf("%w: JSON field %s is not valid Unicode", idemtype.ErrInvalid, field)
		}
		return []byte(s), nil
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		if bytes.ContainsAny(raw, ".eE") {
			return nil, fmt.Errorf("%w: JSON field %s is not an integer", idemtype.ErrAmbiguous, field)
		}
		return raw, nil
	}
	return nil, fmt.Errorf("JSON field %s %w: it is neither a string nor an integer", field, idemtype.ErrNotFound)
}

// plain reports whether a JSON string has ASCII characters only and no escapes.
func plain(inner []byte) bool {
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}
