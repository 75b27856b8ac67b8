// Package pgoutbox is the outbox in Postgres. The package has the table, the method that adds
// events in the transactions of a service ([Outbox.Add]), and the methods that a relay needs
// ([outbox.Store]). Requirements are pgx, and Postgres 14 or later with the encoding UTF8.
//
//	box := pgoutbox.New(pool)
//	idem.OnTx(router, "order.placed", func(
//		ctx context.Context, tx pgx.Tx, e idem.Event[Order],
//	) error {
//		if err := charge(ctx, tx, e.Data); err != nil {
//			return err
//		}
//		return box.Add(ctx, tx, outbox.Entry{
//			Topic: "payments", Key: e.Data.ID, Type: "order.paid", Payload: body,
//		})
//	})
//
// # Guarantees
//
// An event is in the outbox if and only if its transaction commits. A relay publishes the event at
// least once, always with the ID that the transaction gave it. Consumers that deduplicate by the ID
// handle the event once.
//
// Events of one topic and key are numbered, and published, in the order in which their transactions
// commit. A sequence alone does not give this order: the number is drawn when a row is written, and
// the first writer may commit last. Therefore each transaction locks the topics and keys of its
// entries, from before the first number is drawn until its end.
//
// No order is promised between different keys, or for events without a key. Relays find rows by
// their state, not by the last number seen. So a row that commits late is not missed.
//
// A relay publishes the rows that the server shows. With synchronous_commit off, with fsync off, or
// after a failover to an asynchronous standby, a published event may belong to a lost transaction.
// The server may then give the number of a lost row to another event. Settle, Retry and Skip
// go by number and event ID, and leave the other event alone.
//
// # Transactions
//
// The time at which Add writes depends on the transaction:
//
//   - The transactions that the Postgres store lends to handlers keep the entries until just before
//     their commit. All handlers of one transaction write in one sorted statement.
//   - [Outbox.Queue] gives any other transaction the same. [Outbox.Flush] is for transactions that
//     other code commits.
//   - In any other transaction Add writes at once.
//
// Inside a savepoint made by Begin, pass the savepoint to Add, not the outer transaction. A
// rollback of the savepoint then removes the events too.
//
// Locks are held until the commit. Add last, and keep transactions short. A transaction with
// entries of more than 500 keys locks the whole outbox instead of each key. The lock table of the
// server would fill otherwise (max_locks_per_transaction times max_connections). Other writers wait
// for that commit, and that transaction waits for theirs. While such a transaction waits for one
// that stays open after Add, all other writers wait too.
//
// The wait for other writers of a key is bounded by the session's lock_timeout, which is off by
// default. Add then fails with SQLSTATE 55P03. The store sets bounds for the transactions that
// handlers get.
//
// # Schema
//
// [Schema] is the SQL text, and [Migrate] runs it. The rows of idem_outbox are readable: topic,
// key, ID, type and headers are columns, and the payload is the value of the record. To list the
// rows that wait:
//
//	SELECT seq, topic, convert_from(key, 'UTF8'), event_type, event_id, added_at
//	FROM idem_outbox WHERE state = 0 ORDER BY seq;
//
// All names are qualified with a schema: that of [InSchema], or the first one in the session's
// search path that has the table, looked up once. The column seq must stay an identity with CACHE
// 1, see [Outbox.Check].
//
// pg_dump copies the last number of the sequence. Logical replication does not: set the sequence of
// the copy before the first write, otherwise new events are published before those that wait.
//
// The table is a queue. Sent rows are deleted, by the relay or, if the relay keeps sent rows, by
// [Outbox.Purge]. The autovacuum settings of the table clean up after every 5,000 rows. A long open
// transaction anywhere in the database keeps the server from cleaning up, as with every queue in a
// table. Fetching is slower meanwhile; no event is lost.
//
// # Rights
//
// A role that adds entries needs:
//
//	GRANT USAGE ON SCHEMA public TO writer;
//	GRANT INSERT ON idem_outbox TO writer;
//
// A relay needs:
//
//	GRANT USAGE ON SCHEMA public TO relay;
//	GRANT SELECT, UPDATE, DELETE ON idem_outbox TO relay;
//	GRANT SELECT, UPDATE ON idem_outbox_shards TO relay;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON idem_outbox_relays TO relay;
//	GRANT SELECT ON idem_outbox_schema TO relay;
//
// An operator ([Outbox.Parked], [Outbox.Retry], [Outbox.Skip], [Outbox.Backlog]) needs:
//
//	GRANT USAGE ON SCHEMA public TO operator;
//	GRANT SELECT, UPDATE, DELETE ON idem_outbox TO operator;
//	GRANT SELECT, UPDATE ON idem_outbox_shards TO operator;
//	GRANT SELECT ON idem_outbox_relays TO operator; -- for idem outbox status, idem doctor
//
// # Relays
//
// Rows lie in 64 shards by topic and key. A relay holds a lease on each of its shards, by the clock
// of the server. The lease has an epoch that grows each time another relay takes the shard. Relays
// share the shards evenly, within a few calls of Hold after a relay has started or ended.
//
// A relay that has lost a shard without knowing may still publish duplicates, with the same IDs.
// The results for rows of that shard are ignored.
//
// No transaction is open while a relay publishes. Hold, Fetch and Settle are one round trip each.
//
// # Parked rows
//
// A row that no broker will take is parked. Depending on the policy of the relay, the later rows of
// its topic and key are blocked. A person looks at [Outbox.Parked] and decides: [Outbox.Retry]
// after the cause is gone, or [Outbox.Skip].
//
// # Poolers
//
// All methods work through a pooler in transaction mode, because locks and settings last for one
// transaction. If the pooler does not support prepared statements, choose pgx.QueryExecModeExec or
// QueryExecModeSimpleProtocol. The exception is [Outbox.Wake], which needs a session.
//
// # Waking relays
//
// With [Notify], relays learn of new rows within some milliseconds instead of at their next poll.
// The server commits the transactions that notify one after the other, in the whole database.
// Therefore at most one transaction in 10 ms notifies, for each Outbox. Relays find every row by
// polling too.
//
// # Cost
//
// Adding is one round trip for each transaction with up to 1,000 entries or 4 MiB. Each further
// 1,000 entries or 4 MiB is one more. The first transaction of a process has one more.
package pgoutbox
