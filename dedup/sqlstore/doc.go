// Package sqlstore is a store on database/sql, for programs with transactions of the type [sql.Tx].
// The packages postgres, mysql and sqlite make a store for their database.
//
// One algorithm serves all of them. A short transaction reads and locks the rows of the keys in the
// order of the keys, decides, and writes the changed rows. The database's clock decides, and in
// SQLite the clock of the process.
//
// Handlers with KeyOrdered keep their waiting events in tables deferred_queues and deferred_events.
// A transaction that changes a queue first locks the row of the queue. Deferred events do not
// expire.
//
// Rows of handled events stay until a [Reaper] deletes them. They expire in consumed time, which
// consumers record ([Store.RecordProgress]). A store of package sqlite runs a Reaper by itself; in
// other databases run one in every instance:
//
//	go sqlstore.NewReaper(store, sqlstore.ReaperConfig{}).Run(ctx)
package sqlstore
