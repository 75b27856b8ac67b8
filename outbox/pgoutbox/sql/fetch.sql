-- The first waiting rows of each shard, then the oldest of those, up to the limits. Rows that are
-- left out come first in the next call. No row is returned without the rows of its shard that have
-- lower numbers. size is never less than Entry.Size. Parked rows are looked for once, and then for
-- each row if there are any. Without Halt ($5), only rows that another relay has blocked count: no
-- row may overtake these.
--
-- The condition of fetch_skip.sql may follow state = 0. The index does not have its columns: rows
-- that are left out are read one by one, until the limit of the shard is reached.
WITH candidates AS (
    SELECT r.*
    FROM unnest($1::smallint[]) AS s(shard)
    CROSS JOIN LATERAL (
        SELECT o.seq, o.shard, o.topic, o.key, o.event_id, o.event_type, o.payload,
               o.headers::text AS headers, o.added_at
        FROM {outbox} o
        WHERE o.shard = s.shard AND o.state = 0{skip}
        ORDER BY o.seq NULLS FIRST -- see idem_outbox_waiting
        LIMIT $2::bigint) r),
sized AS (
    SELECT c.*, row_number() OVER w AS n,
           sum(140 + octet_length(c.event_id) + octet_length(c.event_type)
               + coalesce(octet_length(c.key), 0)
               + coalesce(octet_length(c.payload), 0)
               + coalesce(octet_length(c.headers), 0)) OVER w AS bytes
    FROM candidates c
    WINDOW w AS (ORDER BY c.seq ROWS UNBOUNDED PRECEDING))
SELECT c.seq, c.shard, c.topic, c.key, c.event_id, c.event_type, c.payload, c.headers, c.added_at,
       c.key IS NOT NULL
       AND CASE WHEN $5::boolean THEN (SELECT EXISTS (SELECT FROM {outbox} a WHERE a.state = 2))
                ELSE (SELECT EXISTS (SELECT FROM {outbox} a WHERE a.state = 3)) END
       AND EXISTS (
           SELECT FROM {outbox} p
           WHERE p.state = 2 AND p.shard = c.shard AND p.topic = c.topic AND p.key = c.key
             AND p.seq < c.seq)
       AND ($5::boolean OR EXISTS (
           SELECT FROM {outbox} b
           WHERE b.state = 3 AND b.shard = c.shard AND b.topic = c.topic AND b.key = c.key
             AND b.seq < c.seq)) AS blocked
FROM sized c
WHERE c.n = 1 OR (c.n <= $3::bigint AND c.bytes <= $4::bigint)
ORDER BY c.seq
