// Package outboxrow has what every table of an outbox shares, whatever its database: the
// preparation of entries, the column of headers, and the shard of a row.
package outboxrow
