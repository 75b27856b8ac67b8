-- Each count stops at its limit. The rows of a shard ascend with time, almost: the first row of a
-- shard is about the oldest one.
SELECT (SELECT count(*) FROM (
            SELECT FROM generate_series(0, $2::int - 1) AS s
            CROSS JOIN LATERAL (
                SELECT FROM {outbox} o WHERE o.shard = s::smallint AND o.state = 0
                ORDER BY o.seq NULLS FIRST LIMIT $1::bigint) w
            LIMIT $1::bigint) c),
       (SELECT count(*) FROM (
            SELECT FROM {outbox} o WHERE o.state = 2
            ORDER BY o.shard, o.topic, o.key, o.seq LIMIT $1::bigint) c),
       (SELECT count(*) FROM (
            SELECT FROM {outbox} o WHERE o.state = 3
            ORDER BY o.shard, o.topic, o.key, o.seq LIMIT $1::bigint) c),
       (SELECT greatest(0, extract(epoch FROM clock_timestamp() - min(f.added_at))
                           * 1000000)::bigint
        FROM generate_series(0, $2::int - 1) AS s
        CROSS JOIN LATERAL (
            SELECT o.added_at FROM {outbox} o WHERE o.shard = s::smallint AND o.state = 0
            ORDER BY o.seq NULLS FIRST LIMIT 1) f)
