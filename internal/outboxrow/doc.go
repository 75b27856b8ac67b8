// Package outboxrow has the parts that the outbox tables of all databases share. These are the
// preparation of entries, the column of headers, and the shard of a row.
package outboxrow
