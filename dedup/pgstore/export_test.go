package pgstore

import "time"

// TurnOf is turnOf, for tests.
var TurnOf = turnOf

// SetSilence sets how long a server may stay silent.
func (s *Store) SetSilence(d time.Duration) { s.db.silence = d }
