-- Ends the parking of a row, and frees the rows that are blocked behind this row only. A number
-- that belongs to another event is left alone: a fail-over may give out numbers twice.
WITH this AS MATERIALIZED (
    SELECT o.seq, o.shard, o.topic, o.key FROM {outbox} o
    WHERE o.seq = $1 AND o.event_id = $2 AND o.state = 2),
ended AS (
    {end}),
freed AS (
    UPDATE {outbox} o SET state = 0 FROM this t
    WHERE o.state = 3 AND o.shard = t.shard AND o.topic = t.topic AND o.key = t.key AND NOT EXISTS (
        SELECT FROM {outbox} p
        WHERE p.state = 2 AND p.shard = o.shard AND p.topic = o.topic AND p.key = o.key
          AND p.seq < o.seq AND p.seq <> t.seq))
SELECT count(*) FROM this
