SELECT o.seq, o.shard, o.topic, o.key, o.event_id, o.event_type, o.payload, o.headers::text,
       o.added_at, false AS blocked,
       o.ended_at, coalesce(o.error, ''),
       (SELECT count(*) FROM (
            SELECT FROM {outbox} b
            WHERE b.state = 3 AND b.shard = o.shard AND b.topic = o.topic AND b.key = o.key
              AND b.seq > o.seq
            LIMIT 100000) c)
FROM {outbox} o WHERE o.state = 2 ORDER BY o.seq LIMIT $1::bigint
