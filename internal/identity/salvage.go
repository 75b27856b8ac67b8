package identity

import "slices"

// maxSalvageDepth limits how deep the nesting of a broken value is followed.
const maxSalvageDepth = 32

// Salvage returns the begin of a broken JSON object, up to the last complete member, as a valid
// object. Nil if the value has no complete member. The result is for hints to people: a value that
// is broken has no identity, because the rest may contradict.
func Salvage(data []byte) []byte {
	s := salvager{scanner: scanner{data: data}}
	s.space()
	if !s.is('{') {
		return nil
	}
	s.open = append(s.open, '}')
	for s.next() {
	}
	if s.kept == 0 {
		return nil
	}
	closing := slices.Clone(s.open[:s.depth])
	slices.Reverse(closing)
	return append(slices.Clone(data[:s.kept]), closing...)
}

// salvager moves over a JSON object up to its first mistake.
type salvager struct {
	scanner
	open  []byte // closing brackets of the lists around the present place
	kept  int    // end of the last complete member; zero without one
	depth int    // brackets that are open there
	comma bool   // a member must follow
}

// next moves over the next member, or over a bracket.
func (s *salvager) next() bool {
	if len(s.open) == 0 || len(s.open) > maxSalvageDepth {
		return false
	}
	end := s.open[len(s.open)-1]
	s.space()
	if !s.comma && s.is(end) {
		s.open = s.open[:len(s.open)-1]
		s.keep()
		return s.between()
	}
	s.comma = false
	if end == '}' && !s.name() {
		return false
	}
	switch {
	case s.is('{'):
		s.open = append(s.open, '}')
		return true
	case s.is('['):
		s.open = append(s.open, ']')
		return true
	case !s.value(0):
		return false
	}
	value := s.at
	s.space()
	if s.at == len(s.data) { // a number may go on
		return false
	}
	s.at = value
	s.keep()
	return s.between()
}

func (s *salvager) keep() { s.kept, s.depth = s.at, len(s.open) }

// name moves over the name of a member.
func (s *salvager) name() bool {
	_, ok := s.str()
	s.space()
	if !ok || !s.is(':') {
		return false
	}
	s.space()
	return true
}

// between moves over a comma. Otherwise the list must end.
func (s *salvager) between() bool {
	s.space()
	if s.is(',') {
		s.comma = true
		return true
	}
	return len(s.open) > 0 && s.at < len(s.data) &&
		s.data[s.at] == s.open[len(s.open)-1]
}
