-- Locks the outbox, shared, then the aggregate of a single row, and then inserts the row. The server
-- draws the number of the row after it has got the row of "locked" (rule 22).
WITH whole AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared($8::bigint)),
locked AS MATERIALIZED (SELECT pg_advisory_xact_lock($9::bigint) FROM whole)
INSERT INTO {outbox} (shard, topic, key, event_id, event_type, payload, headers)
SELECT $1::smallint, $2::text, $3::bytea, $4::text, $5::text, $6::bytea, $7::text::jsonb
FROM locked
