// Package mysql is the outbox in MySQL 8.0.16 and later and MariaDB 10.6 and later, with the driver
// github.com/go-sql-driver/mysql. The package has the tables, and [Outbox.Add], which adds events
// in the transactions of a service. The package also has the methods that a relay ([outbox.Store])
// and an operator ([outbox.Operator]) need. The tables are InnoDB.
//
//	box := mysql.New(db)
//	idem.OnTx(router, "order.placed", func(
//		ctx context.Context, tx *sql.Tx, e idem.Event[Order],
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
// commit. AUTO_INCREMENT alone does not give this order: the number is drawn when a row is written,
// and the first writer may commit last. Therefore each transaction locks rows of idem_outbox_locks
// for the topics and keys of its entries, from before the first number is drawn until its end. This
// holds for every isolation level of the transaction and every innodb_autoinc_lock_mode.
//
// The order holds for writers on one node. The nodes of a cluster with several writers, such as
// Galera or a multi-primary group, share neither the locks nor the counter. There, add the events
// of a topic and key on one node. See [Outbox.Check].
//
// No order is promised between different keys, or for events without a key. Relays find rows by
// their state, not by the last number seen. So a row that commits late is not missed.
//
// A relay publishes the rows that the server shows. With innodb_flush_log_at_trx_commit other than
// 1, or after a failover to a replica that lags behind, a published event may belong to a lost
// transaction. The server may then give the number of a lost row to another event. Settle, Retry
// and Skip go by number and event ID, and leave the other event alone.
//
// # Transactions
//
// Add writes at once, in any transaction. The store of package sqlstore lends one to a handler of
// OnTx or OnBatchTx, and to the function of dedup.DoTx. Your own transactions will do too. Locks
// are held until the commit. Add last, in one call, and keep transactions short. In a handler the
// ID follows from the event: a second run of the handler adds the same ID. A handler of OnBatchTx
// sets [outbox.Entry.Parent].
//
// The hash of a topic and key chooses one of 4,096 locks. So two keys may share a lock, and their
// transactions then wait for each other. A transaction with more than 256 locks takes all of them.
//
// Transactions that call Add twice can deadlock. The server then rolls one of them back, and its
// session has no transaction any more: return the error of Add. The store runs the handler again.
//
// A rollback to a savepoint removes the rows that were added since. Their locks stay until the end
// of the transaction.
//
// # Tables
//
// [Schema] is the SQL text, and [Migrate] runs it. The rows of idem_outbox are readable. To list
// the rows that wait:
//
//	SELECT seq, topic, CONVERT(`key` USING utf8mb4), event_type, event_id, added_at
//	FROM idem_outbox WHERE state = 0 ORDER BY seq;
//
// The tables lie in the database of the session. Times are UTC. The number of rows in
// idem_outbox_locks and idem_outbox_shards must stay as it is.
//
// # Rights
//
// A user that adds entries needs:
//
//	GRANT INSERT ON idem_outbox TO writer;
//	GRANT SELECT, UPDATE ON idem_outbox_locks TO writer;
//
// A relay needs:
//
//	GRANT SELECT, UPDATE, DELETE ON idem_outbox TO relay;
//	GRANT SELECT, UPDATE ON idem_outbox_shards TO relay;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON idem_outbox_relays TO relay;
//	GRANT SELECT ON idem_outbox_schema TO relay;
//	GRANT SELECT ON idem_outbox_locks TO relay; -- for Check
//
// An operator ([Outbox.Parked], [Outbox.Retry], [Outbox.Skip], [Outbox.Backlog]) needs the first
// two of a relay.
//
// # Relays
//
// Rows lie in 64 shards by topic and key. A relay holds a lease on each of its shards, by the clock
// of the server. The lease has an epoch that grows each time another relay takes the shard. No
// transaction is open while a relay publishes. Relays poll: this package has no [outbox.Waker].
// Run [outbox.Relay] in your program: the command `idem relay` knows Postgres only.
//
// The methods for relays and operators use READ COMMITTED, whatever the isolation level of the
// session, and wait for a lock for at most 3 s.
// If a host vanishes inside Settle, Hold or another call that locks rows, the server ends the session
// after 10 s of silence, which frees the rows. A larger idle_transaction_timeout of MariaDB goes
// before. The methods set innodb_lock_wait_timeout, wait_timeout, net_read_timeout and
// net_write_timeout of the session and put them back, because the pool is the application's. A
// deadlock or a lock that is held is an error; the relay calls again.
//
// The context bounds each of these calls, also while the server does not answer. The rollback and
// the end of the session get at most 5 s more each. An error does not tell whether a change was
// made: the commit may have reached the server.
package mysql
