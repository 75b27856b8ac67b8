-- Until the end of the transaction, no relay can take the shards, and no person can release rows
-- that are blocked behind a parked row.
SELECT s.shard
FROM {shards} s JOIN unnest($1::smallint[], $2::bigint[]) AS h(shard, epoch)
    ON h.shard = s.shard AND h.epoch = s.epoch
WHERE s.relay = $3
ORDER BY s.shard
FOR KEY SHARE OF s
