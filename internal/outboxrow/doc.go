// Package outboxrow has the parts that all tables of an outbox share, in each database: the
// preparation of entries, the column of headers, and the shard of a row.
package outboxrow
