-- New claims, sorted, so that two batches with the same keys cannot deadlock. The result is the
-- number of inserted rows. existing_keys.sql answers for the others, and looks for them only if
-- there are any.
WITH new AS (
INSERT INTO {schema}.idempotency_keys
       (tenant, scope, event_type, event_id, status, fingerprint, generation, retry,
        origin_topic, origin_partition, origin_offset, origin_time, token, lease_until, expires_at)
SELECT {tenant}, {scope}, {event_type}, r.event_id, 'claimed', substr({fingerprint}, 1, 16), {generation}, {retry},
       {topic}, r.part, r.pos, r.at, r.token,
       clock_timestamp() + $15::bigint * interval '1 microsecond',
       clock_timestamp() + ($15::bigint + {retention}) * interval '1 microsecond'
FROM unnest($4::text[], $10::timestamptz[], $12::integer[], $13::bigint[], $14::uuid[]{arrays}{topics})
     AS r(event_id, at, part, pos, token{columns}{topic_column})
WHERE ({too_old}) IS NOT TRUE
ORDER BY {tenant} COLLATE "C", {scope} COLLATE "C", {event_type} COLLATE "C", r.event_id COLLATE "C"
ON CONFLICT (tenant, scope, event_type, event_id) DO NOTHING
RETURNING 1
)
SELECT count(*), set_config('idem.new', count(*)::text, true) FROM new
