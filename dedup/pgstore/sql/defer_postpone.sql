-- Lets a deferred event wait for a later attempt, or for a person. Its queue is locked. If the
-- event is the head, the queue shows the change.
WITH moved AS (
    UPDATE {schema}.deferred_events
    SET generation = $7::bigint, retry = $8::bigint, blocked = $9::boolean, data = $11::bytea,
        due = clock_timestamp() + $10::bigint * interval '1 microsecond', updated_at = clock_timestamp()
    WHERE (scope, topic, tenant, event_type, event_id) = ($1::text, $2::text, $4::text, $5::text, $6::text)
      AND queue = $3::bytea
      AND ((generation, retry) < ($7::bigint, $8::bigint)
           OR $9::boolean AND (generation, retry) = ($7::bigint, $8::bigint))
    RETURNING seq, due, blocked
), shown AS (
    UPDATE {schema}.deferred_queues k
    SET due = m.due, blocked = m.blocked
    FROM moved m
    WHERE (k.scope, k.topic, k.queue) = ($1::text, $2::text, $3::bytea) AND k.head_seq = m.seq
)
SELECT count(*) FROM moved
