-- Blocks only rows that are still behind a parked row: a person may have released that row
-- meanwhile.
UPDATE {outbox} o SET state = 3
WHERE o.seq = ANY ($4::bigint[]) AND o.state = 0 AND o.shard IN (
    SELECT s.shard FROM {shards} s JOIN unnest($1::smallint[], $2::bigint[]) AS h(shard, epoch)
        ON h.shard = s.shard AND h.epoch = s.epoch WHERE s.relay = $3)
AND ((o.seq, o.event_id) IN ( -- IS TRUE: no join, which could read the whole table
    SELECT r.seq, r.id FROM unnest($4::bigint[], $5::text[]) AS r(seq, id))) IS TRUE
AND EXISTS (
    SELECT FROM {outbox} p
    WHERE p.state = 2 AND p.shard = o.shard AND p.topic = o.topic AND p.key = o.key
      AND p.seq < o.seq)
