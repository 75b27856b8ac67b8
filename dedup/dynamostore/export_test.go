package dynamostore

import "time"

// Clock is the clock of a host, wall and monotonic, for tests with several hosts in one process.
func Clock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// MarginOf is the time for which a record is kept beyond its retention.
var MarginOf = margin

// Watching is how many claims a store watches.
func (s *Store) Watching() int { return s.watch.len() }

// BirthAge is the time for which a birth is remembered.
const BirthAge = birthAge
