-- Puts events at the ends of their queues. The queues come sorted and are locked in that order,
-- then the events in the order of their keys, so two calls cannot deadlock. An event that is
-- deferred already keeps its place, and its number is skipped. $4, $5, $6: the queues, the long
-- names, the numbers of events; $7: the queue of an event; $8: its distance to the next number of
-- the queue.
WITH q AS MATERIALIZED (
    INSERT INTO {schema}.deferred_queues AS k (scope, topic, partition, queue, name, next_seq)
    SELECT $1::text, $2::text, $3::integer, r.queue, r.name, 1 + r.events
    FROM unnest($4::bytea[], $5::bytea[], $6::bigint[]) AS r(queue, name, events)
    ORDER BY r.queue
    ON CONFLICT (scope, topic, queue) DO UPDATE
    SET partition = excluded.partition, next_seq = k.next_seq + excluded.next_seq - 1
    RETURNING k.queue, k.next_seq
)
INSERT INTO {schema}.deferred_events (scope, topic, queue, seq, tenant, event_type, event_id, generation, retry, due,
                             origin_topic, origin_partition, origin_offset, origin_time, data)
SELECT $1::text, $2::text, r.queue, q.next_seq - r.back, r.tenant, r.event_type, r.event_id, r.generation, r.retry,
       clock_timestamp() + r.wait * interval '1 microsecond', r.topic, r.part, r.pos, r.at, r.data
FROM unnest($7::bytea[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[],
            $15::text[], $16::integer[], $17::bigint[], $18::timestamptz[], $19::bytea[])
     AS r(queue, back, tenant, event_type, event_id, generation, retry, wait, topic, part, pos, at, data)
JOIN q ON q.queue = r.queue
ORDER BY r.tenant COLLATE "C", r.event_type COLLATE "C", r.event_id COLLATE "C"
ON CONFLICT (scope, topic, tenant, event_type, event_id) DO NOTHING
