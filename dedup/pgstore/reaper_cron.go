package pgstore

import (
	_ "embed"
)

//go:embed pgcron.sql
var cronSQL string

// CronSchema returns the SQL text of a procedure, idem_reap, that does what a [Reaper] does, for those who prefer
// pg_cron: as it lies in pgcron.sql, where it says how to call it. [Migrate] does not make it. It may be run again and
// names no schema, so set the search path.
func CronSchema() string { return cronSQL }
