package sqlstore

// SetHorizonRows sets how many rows of a table a horizon step reads.
func (r *Reaper) SetHorizonRows(n int) { r.rows.rows = n }

// SetWindowRows sets how many rows of a table one statement reads.
func (r *Reaper) SetWindowRows(n int) { r.rows.window = n }
