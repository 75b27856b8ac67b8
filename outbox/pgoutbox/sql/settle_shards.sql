-- Keeps the shards from being taken, and a person from releasing what is behind a parked row, until the end of the transaction.
SELECT s.shard
FROM {shards} s JOIN unnest($1::smallint[], $2::bigint[]) AS h(shard, epoch) ON h.shard = s.shard AND h.epoch = s.epoch
WHERE s.relay = $3
ORDER BY s.shard
FOR KEY SHARE OF s
