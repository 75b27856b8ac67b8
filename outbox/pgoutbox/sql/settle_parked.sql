UPDATE {outbox} o SET state = 2, ended_at = clock_timestamp(), error = p.error
FROM unnest($4::bigint[], $5::text[], $6::text[]) AS p(seq, id, error)
WHERE o.seq = p.seq AND o.event_id = p.id AND o.state = 0 AND o.shard IN (
    SELECT s.shard FROM {shards} s JOIN unnest($1::smallint[], $2::bigint[]) AS h(shard, epoch)
        ON h.shard = s.shard AND h.epoch = s.epoch WHERE s.relay = $3)
