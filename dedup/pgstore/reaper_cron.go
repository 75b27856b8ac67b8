package pgstore

import (
	_ "embed"
)

//go:embed pgcron.sql
var cronSQL string

// CronSchema returns the SQL text of procedure idem_reap, which does the work of a [Reaper], for
// use with pg_cron. The text is that of pgcron.sql, which explains how to call the procedure.
// [Migrate] does not create the procedure. The text names no schema, so set the search path. You
// may run the text again.
func CronSchema() string { return cronSQL }
