// Package pgstore is the store in Postgres. It keeps two kinds of records. Records of transactional
// handlers are written in the transaction of their effects ([Store.ClaimTx], table
// processed_events). Claims with a lease are for effects outside the database ([Store.Claim], table
// idempotency_keys). The package needs Postgres 14 or later with the encoding UTF8.
//
// # Guarantees
//
// Those of [dedup.TxStore]: a row of processed_events is committed if and only if the effects of
// the event are, whichever process crashes. For claims, those of [dedup.Store]: exactly one
// caller gets Fresh. If a holder crashes, the claim stays and becomes Uncertain.
//
// The guarantees are as strong as the commits of the database. With synchronous_commit or fsync
// off, a crash of the server loses the last commits, effects and rows alike. So does a fail-over
// to an asynchronous standby. The consumer's offsets stay: rewind the consumer group by some
// minutes, and the store skips the events that are still known. [Store.Check] warns of these
// settings. [Durable] overrides synchronous_commit.
//
// Every transaction is READ COMMITTED, independent of the default of the database. A handler
// that reads rows to decide must lock them, as in any transaction of that level.
//
// # Schema
//
// [Schema] returns the text, [Migrate] runs the text, and the command in directory schema prints
// the text. The first key column is the tenant. Keys are compared byte by byte (COLLATE "C"). To
// look an event up by hand:
//
//	SELECT * FROM processed_events WHERE event_id = 'order-12345';
//
// All names are qualified with a schema: that of [InSchema], or the first one in the session's
// search path that has the tables. The store looks this schema up once. So a temporary table of the
// same name has no effect.
//
// The role of a worker needs
//
//	GRANT USAGE ON SCHEMA public TO worker;
//	GRANT SELECT, INSERT, UPDATE ON processed_events, idempotency_keys TO worker;
//	GRANT SELECT, INSERT, UPDATE, DELETE
//	   ON event_starts, idem_progress, deferred_queues, deferred_events TO worker;
//	GRANT SELECT, INSERT, UPDATE ON idem_scopes, idem_scope_topics, idem_descriptors TO worker;
//	GRANT SELECT ON idem_schema, idem_horizons TO worker;
//
// [Reaper] lists the rights of the role that deletes expired rows. [Store.Forget] needs the right
// to delete from the tables of events and claims. Grant this right to operators only.
//
// # Layouts
//
// The tables above are the readable layout: each row shows its event in plain text. [Compact]
// chooses the compact layout, with tables processed_events_compact and idempotency_keys_compact.
// A number replaces tenant, scope and type (table idem_kinds), another one replaces topic and
// partition (idem_origins), and 16 bytes replace the ID. A finished event takes about 125 bytes
// with the indexes instead of 320, and claims are about 1.4 times as fast. The price: an ID that
// is neither a UUID nor a ULID is stored as a hash only, which does not give the ID back. The
// first [Migrate] fixes the layout. A store with the other layout fails at its first call and in
// [Store.Check].
//
// Views show rows of the compact layout with the columns of the readable one:
// processed_events_read and idempotency_keys_read. Their event_id is null if the row has a hash
// only. To look an event up by the ID, a UUID or any other:
//
//	SELECT * FROM processed_events_read
//	 WHERE scope = 'orders' AND id = '0190f3b4-5c2a-7abc-8def-0123456789ab';
//	SELECT * FROM processed_events_read
//	 WHERE scope = 'orders'
//	   AND id = left(encode(sha256(convert_to('order-12345', 'UTF8')), 'hex'), 32)::uuid;
//
// The role of a worker needs, instead of the rights on the two tables of the readable layout,
//
//	GRANT SELECT, INSERT, UPDATE ON processed_events_compact, idempotency_keys_compact TO worker;
//	GRANT SELECT ON processed_events_read, idempotency_keys_read TO worker;
//	GRANT SELECT, INSERT ON idem_kinds, idem_origins TO worker;
//
// A number is committed in a separate transaction before the first use, and that commit waits
// for the disk. Each store remembers numbers, and numbers are never deleted. So the number of
// tenants and types must be bounded. After a fail-over to an asynchronous standby that has lost
// numbers, restart the workers.
//
// # Versions
//
// Each record has a version. If this release does not know the version or the status of a record,
// the call fails with [dedup.ErrUnavailable].
//
// # Deferred events
//
// Tables deferred_queues and deferred_events hold events that wait in the order of their Kafka
// keys ([dedup.Deferrer]). Both layouts have these tables. A row of deferred_queues is a queue.
// The row exists if and only if the queue has an event. A transaction that adds or removes
// events first locks the rows of their queues, in the order of the keys. Deferred events do not
// expire. A deferred event stays until the event has ended, or a person removes the event.
//
// # Inspection
//
// [Store.Inspect] and [Store.Find] use the index of the key. [Store.List] reads both tables as a
// whole. Records of the compact layout show the same as those of the readable one, except for IDs
// that are stored as a hash.
//
// # Expiry
//
// Column expires_at is the end of a row's retention, by the server's clock. The retention of a
// claim begins when the lease ends. An expired row still counts until a [Reaper] deletes it. No
// call shortens the retention of a record.
//
// Table idem_horizons has the horizon of each scope. An older event without a record is answered
// [dedup.TooOld], and no row is written.
//
// # Failure modes
//
// The server cannot be reached, shuts down, is read-only, full or out of memory, or the tables are
// missing. Then every method fails with [dedup.ErrUnavailable], and no handler runs.
//
// The connection breaks at COMMIT: the error matches [dedup.ErrUnknownCommit]. Claim again, and the
// row shows the outcome.
//
// A worker crashes, or the network breaks: the session ends when the server notices. [Configure]
// and [Open] set parameters that make this a matter of seconds. Otherwise see the warnings of
// [Store.Check]. Until the session ends, a copy of the event gets Busy after 2 s. Poolers such
// as PgBouncer refuse these start-up parameters unless ignore_startup_parameters lists them.
// Then set the parameters for the role (ALTER ROLE ... SET). In transaction mode also choose
// pgx.QueryExecModeExec or QueryExecModeSimpleProtocol. The store keeps no state in a session.
//
// Several events update the same rows: transactions that lock rows in different orders would
// deadlock. So a call of ClaimTx with several requests waits at most 20 ms for a lock. Then the
// call fails with [dedup.ErrContended].
//
// The handler of a group ends the transaction by SQL: [dedup.TxChecker] finds this without a
// round trip, even if another transaction was begun. For that the session has another
// application_name inside the transaction, and the server reports each change of the name. If
// the handler has committed the claims of events that had not run, the store makes these rows
// wait for another copy. If a call of the group fails, the store rolls back and asks the server in
// the same round trip whether the transaction had been committed. After a lost connection another
// one asks. If the process crashes between that COMMIT and the repair, those events are lost. Only
// a handler that does not end the transaction prevents that.
//
// A request is repeated during the run: a claim with NoWait takes an advisory lock of the
// transaction. The lock is on a number made of schema and key. If another transaction has the lock,
// the answer is Busy, without a wait and without a connection in use. The lock ends with the
// transaction, also through a pooler.
//
// # Transactions of your own
//
// [Store.Once] makes the store's insert in a transaction of yours, on the same records.
// [LockKey] and [TryLockKey] lock a natural key until a transaction ends, for code that reads
// before it writes. If copies may bring a state in any order, use an upsert with a guard, so
// that the state only goes forward:
//
//	INSERT INTO accounts AS a (id, balance, version) VALUES ($1, $2, $3)
//	ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, version = excluded.version
//	WHERE a.version < excluded.version
//	RETURNING (xmax = 0) AS inserted
//
// The statement returns true for an inserted row, false for an updated row, and no row if the guard
// refused. The expression xmax = 0 has this meaning only in this RETURNING. Later a row that was
// merely locked has an xmax, and a row after an ordinary UPDATE has no xmax. On a partitioned table
// the expression is an error. From Postgres 18 on, RETURNING old.id IS NULL means the same.
//
// # Cost per message
//
// A claim of any number of keys is one round trip. So is each other method, also for deferred
// events. A transaction takes two round trips: begin and claim are one, the commit is the other. A
// completion that is not plain takes a third. A batch of duplicates writes no row and takes no
// transaction ID.
//
// Duplicates come in runs. After a group of mostly known events, the next group begins with a look
// that writes no row. If all events of the group are known, the look is the only round trip, for a
// quarter of the work. Otherwise it is an additional one. After a group without known events, the
// next transaction reads existing rows only if an insert was skipped, in a round trip of its own.
//
// A claim with NoWait costs as much as one without, and two round trips if the answer is Busy.
// [Store.Look] and [Store.LookTx] are one round trip. Values that the requests of a call share
// (tenant, scope, type, topic, retention) travel once.
package pgstore
