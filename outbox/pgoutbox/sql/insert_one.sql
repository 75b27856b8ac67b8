-- Inserts a single row without a key, which has no order.
INSERT INTO {outbox} (shard, topic, key, event_id, event_type, payload, headers)
VALUES ($1::smallint, $2::text, $3::bytea, $4::text, $5::text, $6::bytea, $7::text::jsonb)
