// Package pgoutbox is the outbox in Postgres: the table, what writes to it in the transactions of a service ([Outbox.Add]), and what a
// relay asks of it ([outbox.Store]). It needs Postgres 14 or later with the encoding UTF8, and pgx.
//
//	box := pgoutbox.New(pool)
//	idem.OnTx(router, "order.placed", func(ctx context.Context, tx pgx.Tx, e idem.Event[Order]) error {
//		if err := charge(ctx, tx, e.Data); err != nil {
//			return err
//		}
//		return box.Add(ctx, tx, outbox.Entry{Topic: "payments", Key: e.Data.ID, Type: "order.paid", Payload: body})
//	})
//
// # Guarantees
//
// An event is in the outbox if and only if its transaction was committed, and a relay publishes it at least once, always with the ID that
// the transaction gave it (O-14): consumers that deduplicate by it handle it once.
//
// Events of one topic and key have numbers in the order in which their transactions committed, and are published in it (rule 22). That is
// not what a sequence does by itself: it gives out numbers when rows are written, and whoever wrote first may commit last (O-01). So
// each transaction holds a lock for each topic and key that it writes to, from before its first number is drawn until its end. Nothing is promised
// between different keys, and nothing for events without a key. Rows are found by their state, never by a number that was
// seen last, so that no row that commits late is passed over.
//
// What a relay publishes is what the server shows: with synchronous_commit off, with fsync off, or when an asynchronous standby takes over, an
// event may have been published of a transaction that is gone then.
//
// # Transactions
//
// How Add writes depends on the transaction. The transactions that the store in Postgres lends to handlers keep what is added
// until just before their commit, so that all handlers of one transaction write in one sorted statement. [Outbox.Queue] gives
// any other transaction the same; [Outbox.Flush] is for transactions that somebody else commits. In a transaction of which
// nothing is known, Add writes at once. Inside a savepoint that was made by Begin give Add the savepoint, not the transaction around
// it, so that what is rolled back takes its events with it.
//
// A transaction with entries of more than 500 keys locks the outbox as a whole instead of each key, so that the server's table of locks, of
// max_locks_per_transaction times max_connections places, does not run full: others wait for its commit, and it for theirs. While it
// waits nobody else gets in: a transaction that stays open for a minute after Add, and one of more than 500 keys, hold up all
// writers for that minute. Add last, and bound transactions.
//
// Waiting for other writers of a key is bounded by the session's lock_timeout, by default by nothing; Add fails with SQLSTATE 55P03
// then. The store has bounds of its own for the transactions that it lends.
//
// # Schema
//
// [Schema] is the text, [Migrate] runs it. A row of idem_outbox can be read by anyone: topic, key, ID, type and headers are columns, the
// payload is the value of the record. What waits, by hand:
//
//	SELECT seq, topic, convert_from(key, 'UTF8'), event_type, event_id, added_at FROM idem_outbox WHERE state = 0 ORDER BY seq;
//
// All names are qualified with a schema: that of [InSchema], or the first one in the session's search path that has the table, looked
// up once. The column seq must stay an identity with CACHE 1, see [Outbox.Check]. pg_dump carries its last number over; logical replication does
// not: set it before anybody writes to the copy, else new events are published before those that wait (rule 22).
//
// The table is a queue. Rows that were sent are deleted, or, if the relay keeps them, by [Outbox.Purge]; its autovacuum settings clean up
// after every 5,000 rows. A transaction anywhere in the database that stays open for long keeps the server from cleaning up, as with every
// queue in a table, and fetching gets slower meanwhile; no event is lost or delayed otherwise (O-02).
//
// # Rights
//
// A role that adds entries needs no more than
//
//	GRANT USAGE ON SCHEMA public TO writer;
//	GRANT INSERT ON idem_outbox TO writer;
//
// a relay
//
//	GRANT USAGE ON SCHEMA public TO relay;
//	GRANT SELECT, UPDATE, DELETE ON idem_outbox TO relay;
//	GRANT SELECT, UPDATE ON idem_outbox_shards TO relay;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON idem_outbox_relays TO relay;
//	GRANT SELECT ON idem_outbox_schema TO relay;
//
// and whoever operates ([Outbox.Parked], [Outbox.Retry], [Outbox.Skip], [Outbox.Backlog])
//
//	GRANT USAGE ON SCHEMA public TO operator;
//	GRANT SELECT, UPDATE, DELETE ON idem_outbox TO operator;
//	GRANT SELECT, UPDATE ON idem_outbox_shards TO operator;
//	GRANT SELECT ON idem_outbox_relays TO operator; -- for the commands idem outbox status and idem doctor
//
// # Relays
//
// Rows lie in 64 shards by topic and key. A relay holds a lease on each of its shards, with an epoch that grows with every change of hands (O-13),
// by the server's clock only. Relays share the shards evenly, within a few calls of Hold after one has come or gone. What a
// relay that lost a shard without knowing still publishes is a duplicate with the same ID; what it says afterwards about rows of that shard counts
// for nothing.
//
// No transaction is open while a relay publishes (O-11). Hold, Fetch and Settle are one round trip each.
//
// # Parked rows
//
// A row that no broker will take is parked, and what comes after it in its aggregate is blocked, or not, as the relay was told. A person looks at
// [Outbox.Parked] and decides: [Outbox.Retry] after the cause is gone, or [Outbox.Skip].
//
// # Poolers
//
// Everything works through a pooler in transaction mode: locks and settings are those of a transaction. Choose pgx.QueryExecModeExec or
// QueryExecModeSimpleProtocol if it does not know prepared statements (P-17). The exception is [Outbox.Wake], which needs a session.
//
// # Waking relays
//
// With [Notify], relays learn of new rows at once instead of at their next poll. The server lets transactions that notify commit one after
// the other, in the whole database (O-12): with many writers that costs far more than it gains. Rows are found without it.
//
// # Cost
//
// Adding is one round trip for each transaction, whatever the number of entries up to 1,000 or 4 MiB, one more for each further 1,000 or 4 MiB, and
// one more for the first transaction of a process.
package pgoutbox
