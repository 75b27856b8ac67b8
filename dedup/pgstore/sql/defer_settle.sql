-- Updates queues ($3) after events were added or removed. Their rows are locked. A queue with
-- another head is due with it, and a queue without events ends. This is a statement of its own,
-- because only a new snapshot shows the changes that the locks waited for.
WITH h AS MATERIALIZED (
    SELECT k.queue, k.head_seq, p.seq, p.due, p.blocked
    FROM unnest($3::bytea[]) AS r(queue)
    JOIN {schema}.deferred_queues k ON (k.scope, k.topic, k.queue) = ($1::text, $2::text, r.queue)
    LEFT JOIN LATERAL (
        SELECT p.seq, p.due, p.blocked
        FROM {schema}.deferred_events p
        WHERE (p.scope, p.topic, p.queue) = ($1::text, $2::text, r.queue)
        ORDER BY p.seq
        LIMIT 1
    ) p ON true
    WHERE p.seq IS DISTINCT FROM k.head_seq OR p.seq IS NULL
), ended AS (
    DELETE FROM {schema}.deferred_queues k
    USING h
    WHERE (k.scope, k.topic, k.queue) = ($1::text, $2::text, h.queue) AND h.seq IS NULL
)
UPDATE {schema}.deferred_queues k
SET head_seq = h.seq, due = greatest(h.due, clock_timestamp()), blocked = h.blocked
FROM h
WHERE (k.scope, k.topic, k.queue) = ($1::text, $2::text, h.queue) AND h.seq IS NOT NULL
