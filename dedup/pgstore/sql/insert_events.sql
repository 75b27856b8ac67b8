-- Claims in the transaction of the effects. The rows are done at once: before the commit no other
-- transaction sees them.
INSERT INTO {schema}.processed_events
       (tenant, scope, event_type, event_id, fingerprint, generation, retry,
        origin_topic, origin_partition, origin_offset, origin_time, expires_at)
SELECT {tenant}, {scope}, {event_type}, r.event_id, substr({fingerprint}, 1, 16), {generation}, {retry},
       {topic}, r.part, r.pos, r.at, clock_timestamp() + {retention} * interval '1 microsecond'
FROM unnest($4::text[], $10::timestamptz[], $12::integer[], $13::bigint[]{arrays}{topics})
     AS r(event_id, at, part, pos{columns}{topic_column})
WHERE ({too_old}) IS NOT TRUE{turn}
ORDER BY {tenant} COLLATE "C", {scope} COLLATE "C", {event_type} COLLATE "C", r.event_id COLLATE "C"
ON CONFLICT (tenant, scope, event_type, event_id) DO NOTHING
{returning}
