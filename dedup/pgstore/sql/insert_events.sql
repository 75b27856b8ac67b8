-- Claims in the transaction of the effects. They are done at once: nobody sees them before the commit.
WITH new AS (
INSERT INTO {schema}.processed_events
       (tenant, scope, event_type, event_id, fingerprint, generation, retry,
        origin_topic, origin_partition, origin_offset, origin_time, expires_at)
SELECT r.tenant, r.scope, r.event_type, r.event_id, r.fingerprint, r.generation, r.retry,
       r.topic, r.part, r.pos, r.at, clock_timestamp() + r.retention * interval '1 microsecond'
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[],
            $9::text[], $10::integer[], $11::bigint[], $12::timestamptz[])
     AS r(tenant, scope, event_type, event_id, fingerprint, generation, retry, retention, topic, part, pos, at)
ORDER BY r.tenant COLLATE "C", r.scope COLLATE "C", r.event_type COLLATE "C", r.event_id COLLATE "C"
ON CONFLICT (tenant, scope, event_type, event_id) DO NOTHING
RETURNING 1
)
SELECT count(*), set_config('idem.new', count(*)::text, true) FROM new
