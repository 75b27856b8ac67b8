// Package postgres adds events to the outbox of package pgoutbox in transactions of database/sql
// ([sql.Tx]). The errors of the driver must have a method SQLState, as those of pgx (stdlib) and
// lib/pq have.
//
//	box := postgres.New()
//	idem.OnTx(router, "order.placed", func(
//		ctx context.Context, tx *sql.Tx, e idem.Event[Order],
//	) error {
//		...
//		return box.Add(ctx, tx, outbox.Entry{
//			Topic: "payments", Key: e.Data.ID, Type: "order.paid", Payload: body,
//		})
//	})
//
// The tables, their versions and the rights are those of pgoutbox: create them with
// pgoutbox.Migrate, the text of pgoutbox.Schema, or `idem migrate up --outbox`. The relay, and the
// methods for operators, are those of pgoutbox too, and `idem relay`. They need a pool of pgx of
// their own.
//
// The guarantees are those of pgoutbox. Both packages take the same locks, so they may add to one
// table at once, such as during a move from one to the other. The events of a topic and key then
// keep the order of commits.
//
// A transaction of database/sql has no queue: Add always writes at once. Relays find the rows at
// their next poll, because this package does not notify.
package postgres
