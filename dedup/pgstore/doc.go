// Package pgstore is the store in Postgres. It remembers in two ways: in the transaction of the effects
// ([Store.ClaimTx], table processed_events), and by claims with a lease for effects elsewhere ([Store.Claim], table
// idempotency_keys). It needs Postgres 14 or later with the encoding UTF8.
//
// # Guarantees
//
// All of [dedup.TxStore]. A row of processed_events is committed if and only if the effects of its event are: there is
// no window, whatever dies. For claims, what [dedup.Store] says: exactly one caller is Fresh, and a holder who died
// half-way leaves an Uncertain claim behind, never nothing.
//
// The guarantee is that of the database's own commits. With synchronous_commit off, fsync off, or after a fail-over to
// an asynchronous standby, the last commits are gone, effects and rows alike, while the offsets of the broker stay:
// rewind the consumer group by some minutes, the store absorbs what is still known. [Store.Check] warns of the
// settings; [Durable] overrides the first.
//
// Every transaction says READ COMMITTED itself, whatever the database's default (P-02). Handlers that read the database
// to decide need their own care, as in any transaction of that level (P-03).
//
// # Schema
//
// [Schema] is the text, [Migrate] runs it, and the command schema in this directory prints it. The key columns are led
// by tenant and compared byte by byte (COLLATE "C"). Look an event up by hand:
//
//	SELECT * FROM processed_events WHERE event_id = 'order-12345';
//
// All names are qualified with a schema: that of [InSchema], or the first one in the session's search path that has
// the tables, looked up once. A temporary table of the same name can therefore not come between.
//
// A role that handles events needs no more than
//
//	GRANT USAGE ON SCHEMA public TO worker;
//	GRANT SELECT, INSERT, UPDATE ON processed_events, idempotency_keys TO worker;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON event_starts, idem_progress, deferred_queues, deferred_events TO worker;
//	GRANT SELECT, INSERT, UPDATE ON idem_scopes, idem_scope_topics, idem_recipes TO worker;
//	GRANT SELECT ON idem_schema, idem_horizons TO worker;
//
// and whoever deletes what has expired what [Reaper] says (G-12). [Store.Forget] takes the right to delete from the tables of
// events and claims, which no handler needs: give it to the role of those who operate.
//
// # Layouts
//
// The tables above are the readable layout: whoever looks at a row sees what it is about. With [Compact], tables
// processed_events_compact and idempotency_keys_compact have a number in place of tenant, scope and type (table idem_kinds),
// one in place of topic and partition (idem_origins), and 16 bytes in place of the ID. An event that is done takes about 125
// bytes with its indexes in place of 320, and claims are about 1.4 times as fast. The price: of an ID that is no UUID and no
// ULID there is a hash only, which nobody can turn back. Choose at the first [Migrate]; a layout cannot be changed, and
// a store that was made for the other one fails at its first call and in [Store.Check] (rule 28).
//
// Views show rows of the compact layout with the columns of the readable one: processed_events_read and
// idempotency_keys_read. event_id is null there where a hash stands for it. Look an event up by its ID, a UUID or any other:
//
//	SELECT * FROM processed_events_read WHERE scope = 'orders' AND id = '0190f3b4-5c2a-7abc-8def-0123456789ab';
//	SELECT * FROM processed_events_read WHERE scope = 'orders'
//	   AND id = left(encode(sha256(convert_to('order-12345', 'UTF8')), 'hex'), 32)::uuid;
//
// A role that handles events needs, in place of the rights on the two tables of the readable layout,
//
//	GRANT SELECT, INSERT, UPDATE ON processed_events_compact, idempotency_keys_compact TO worker;
//	GRANT SELECT ON processed_events_read, idempotency_keys_read TO worker;
//	GRANT SELECT, INSERT ON idem_kinds, idem_origins TO worker;
//
// Numbers are made in transactions of their own, committed before they are used and waiting for the disk, remembered by
// each store, and never deleted: tenants and types must not be without bound. After a fail-over to an asynchronous standby
// that lost some, restart the workers.
//
// Records carry a version. One that this release does not know, or an unknown status, makes the call fail with
// [dedup.ErrUnavailable] instead of being guessed at (rule 35).
//
// # Deferred events
//
// Tables deferred_queues and deferred, the same in both layouts, hold events that wait in the order of their Kafka keys
// ([dedup.Deferrer], rule 4). A row of deferred_queues is a queue: it is there if and only if an event is, and is locked, in the
// order of the keys, by whoever puts an event into it or takes one out. What is deferred does not expire: it goes when its
// event has ended, or by a person.
//
// # What a person sees
//
// [Store.Inspect] and [Store.Find] go by the key's index; [Store.List] reads both tables as a whole. Records of the compact
// layout say all that those of the readable one say, but for IDs of which there is only a hash.
//
// # Expiry
//
// expires_at, by the server's clock, says until when a row must be kept; a claim's begins when its lease ends. A row
// that is past it still counts until a [Reaper] deletes it. A record is never kept for less than an earlier call asked
// for.
//
// Table idem_horizons says since when the store remembers everything of a scope. An event from before that which is not
// on record is answered [dedup.TooOld] and leaves nothing behind (rule 8).
//
// # Failure modes
//
// The server cannot be reached, is shutting down, read-only, full or out of memory, or its tables are missing: every
// verb fails with [dedup.ErrUnavailable], and nothing is run.
//
// The connection breaks at COMMIT: [dedup.ErrUnknownCommit]. Claim again, the row tells (P-11).
//
// A worker dies, or the network between: its session ends when the server notices. [Configure] and [Open] set what
// makes that a matter of seconds; without it, see what [Store.Check] warns of. Until then a copy of its event is Busy
// after 2 s (rule 10). Poolers such as PgBouncer refuse those start-up parameters unless they are in
// ignore_startup_parameters: then set them for the role (ALTER ROLE ... SET). In transaction mode also choose
// pgx.QueryExecModeExec or QueryExecModeSimpleProtocol (P-17); the store itself keeps nothing in a session.
//
// Rows that several events update: a call of ClaimTx with several requests never waits longer than 20 ms for a lock,
// because transactions that share rows in different orders would deadlock; it fails with [dedup.ErrContended] instead
// (rule 1).
//
// A handler of a group ends the transaction by SQL: its session has another application_name inside, which the server
// reports to have changed back, so that [dedup.TxChecker] finds it without a round trip even if another transaction was
// begun. If the claims of events that had not run were committed, their rows are made to wait for their copies again
// (rule 12). A process that dies between that COMMIT and the repair loses those events: nothing but a handler that
// leaves its transaction alone prevents it.
//
// Retries of a request that runs: a claim with NoWait takes an advisory lock of the transaction on a number made of schema and key.
// Who does not get it is told Busy, without waiting and without keeping a connection (rule 20). The lock ends with the transaction,
// also through a pooler.
//
// # Code that keeps its own transactions
//
// [Store.Once] is the store's insert in a transaction of the caller's, on the same records. [LockKey] and [TryLockKey] lock what a
// natural key names until a transaction ends, for those who read before they write. State that copies may bring in any order
// goes forward only by an upsert with a guard:
//
//	INSERT INTO accounts AS a (id, balance, version) VALUES ($1, $2, $3)
//	ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, version = excluded.version
//	WHERE a.version < excluded.version
//	RETURNING (xmax = 0) AS inserted
//
// It returns true for a row that was inserted, false for one that was updated, and none where the guard refused. xmax = 0 says so in
// this RETURNING only: later, a row that was merely locked has one, and a row after an ordinary UPDATE has none. On a partitioned
// table it is an error. From Postgres 18 on, RETURNING old.id IS NULL says the same in words.
//
// # Cost per message
//
// A claim, with all its keys, is one round trip, and so is each of the other verbs, those on deferred_events events too. A transaction is two: begin and
// claim are one, the commit is the other; three if a completion is not plain. A batch of duplicates only writes nothing
// and takes no transaction ID (P-20).
//
// Duplicates come in runs. After a group of which most was known, the next group begins with a look that writes nothing:
// if all of it is over already that is all, one round trip and a quarter of the work; else it costs a round trip more.
// After a group of which nothing was known, the next transaction asks for what exists only if it meets something, in a
// round trip of its own.
// A claim with NoWait costs what one without it does, and two round trips if the answer is Busy. [Store.Look] and [Store.LookTx] are
// one round trip. What the requests of a call share (tenant, scope, type, topic, retention) travels once.
package pgstore
