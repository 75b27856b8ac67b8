// Package outbox lets events leave a service exactly when the transaction that made them commits: they are rows of a table in the service's
// own database, written in that transaction, and a [Relay] publishes them afterwards. It has the words and the relay; package pgoutbox has the table.
package outbox
