// Package pgoutbox is the outbox in Postgres: the table, what writes to it in the transactions of a service, and what a relay asks of it.
package pgoutbox
