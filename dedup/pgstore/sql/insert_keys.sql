-- New claims. Sorted, so that two batches with the same keys never lock them crosswise. How many rows were inserted is
-- the answer: existing_keys.sql tells about all others, and looks for them only if there are any.
WITH new AS (
INSERT INTO {schema}.idempotency_keys
       (tenant, scope, event_type, event_id, status, fingerprint, generation, retry,
        origin_topic, origin_partition, origin_offset, origin_time, token, lease_until, expires_at)
SELECT r.tenant, r.scope, r.event_type, r.event_id, 'claimed', r.fingerprint, r.generation, r.retry,
       r.topic, r.part, r.pos, r.at, $13::uuid,
       clock_timestamp() + $14::bigint * interval '1 microsecond',
       clock_timestamp() + ($14::bigint + r.retention) * interval '1 microsecond'
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[],
            $9::text[], $10::integer[], $11::bigint[], $12::timestamptz[])
     AS r(tenant, scope, event_type, event_id, fingerprint, generation, retry, retention, topic, part, pos, at)
ORDER BY r.tenant COLLATE "C", r.scope COLLATE "C", r.event_type COLLATE "C", r.event_id COLLATE "C"
ON CONFLICT (tenant, scope, event_type, event_id) DO NOTHING
RETURNING 1
)
SELECT count(*), set_config('idem.new', count(*)::text, true) FROM new
