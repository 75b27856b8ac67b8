-- Records the consumed time of a scope ($1). Times are capped at one minute before now, by the
-- server's clock: the broker may have records that no consumer has seen yet. A partition that went
-- back without a time has none.
INSERT INTO {schema}.idem_progress AS p (scope, topic, partition, next_offset, consumed_until)
SELECT $1::text, r.topic, r.part, r.next,
       CASE WHEN r.caught_up THEN clock_timestamp() - interval '1 minute'
            WHEN r.at IS NOT NULL THEN least(r.at, clock_timestamp() - interval '1 minute') END
FROM unnest($2::text[], $3::integer[], $4::bigint[], $5::timestamptz[], $6::boolean[])
     AS r(topic, part, next, at, caught_up)
ORDER BY r.topic COLLATE "C", r.part
ON CONFLICT (scope, topic, partition) DO UPDATE
SET next_offset = excluded.next_offset,
    consumed_until = CASE WHEN excluded.consumed_until IS NULL AND excluded.next_offset >= p.next_offset
                          THEN p.consumed_until ELSE excluded.consumed_until END,
    updated_at = clock_timestamp()
