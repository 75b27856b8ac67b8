package sqlstore

// SetHorizonRows sets how many rows of a table a horizon step reads.
func (r *Reaper) SetHorizonRows(n int) { r.rows.rows = n }
