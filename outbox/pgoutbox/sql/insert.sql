-- Inserts rows in the order of the arrays: the server draws the numbers after the sort (rule 22).
INSERT INTO {outbox} (shard, topic, key, event_id, event_type, payload, headers)
SELECT r.shard, r.topic, r.key, r.event_id, r.event_type, r.payload, r.headers::jsonb
FROM unnest($1::smallint[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::bytea[],
            $7::text[])
     WITH ORDINALITY
     AS r(shard, topic, key, event_id, event_type, payload, headers, n)
ORDER BY r.n
