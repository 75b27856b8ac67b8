package idem

import (
	"encoding/json"
	"fmt"
)

// This file finds members of JSON objects. encoding/json can do that too, in twenty times the time: a consumer looks
// for the type and the identity in every delivery, duplicates included. FuzzJSONMember holds the two against each other.

// jsonField walks the path through nested objects. What is not a JSON object has no fields.
func jsonField(data []byte, path []string) (json.RawMessage, error) {
	for _, name := range path {
		next, err := jsonMember(data, name)
		if err != nil {
			return nil, err
		}
		data = next
	}
	return data, nil
}

// What no field can be found in.
var (
	errNotJSON  = fmt.Errorf("%w: the value is not valid JSON", ErrNotFound)
	errNoObject = fmt.Errorf("%w: the value is not a JSON object", ErrNotFound)
	errNoValue  = fmt.Errorf("%w: the value is empty", ErrNotFound)
)

// jsonMember returns the value of a member of the object that data begins with. It reads the object to its end, since a
// name that comes twice is ambiguous, and a value that was cut short has no identity.
func jsonMember(data []byte, name string) (found json.RawMessage, err error) {
	s := scanner{data: data}
	s.space()
	if !s.is('{') {
		return nil, s.withoutFields()
	}
	s.space()
	if s.is('}') {
		return nil, ErrNotFound
	}
	for {
		key, ok := s.str()
		s.space()
		if !ok || !s.is(':') {
			return nil, errNotJSON
		}
		s.space()
		from := s.at
		if !s.value(0) {
			return nil, errNotJSON
		}
		if sameName(key, name) {
			if found != nil {
				return nil, fmt.Errorf("%w: it appears more than once", ErrAmbiguous)
			}
			found = data[from:s.at:s.at]
		}
		s.space()
		switch {
		case s.is(','):
			s.space()
		case s.is('}'):
			if found == nil {
				return nil, ErrNotFound
			}
			return found, nil
		default:
			return nil, errNotJSON
		}
	}
}

// withoutFields says what the data is, behind its leading space, that does not begin like an object.
func (s *scanner) withoutFields() error {
	if s.at == len(s.data) {
		return errNoValue
	}
	valid := s.value(0)
	if s.space(); !valid || s.at < len(s.data) {
		return errNotJSON
	}
	return errNoObject
}

// sameName compares a name as it is written, with its quotes, to one in plain text.
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

// scanner reads JSON. Its methods move over what they name and report whether it was there.
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

// str moves over a string and returns it with its quotes.
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
