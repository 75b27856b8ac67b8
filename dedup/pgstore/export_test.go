package pgstore

import "time"

// TurnOf is turnOf, for tests.
var TurnOf = turnOf

// SetSilence sets how long a server may stay silent.
func (s *Store) SetSilence(d time.Duration) { s.db.silence = d }

// SetHorizonRows sets how many rows of a table a horizon step reads.
func (r *Reaper) SetHorizonRows(n int) { r.rows.scopes.Limit = n }

// SetWindowRows sets how many rows of a table one statement reads.
func (r *Reaper) SetWindowRows(n int) { r.rows.scopes.Window = n }
