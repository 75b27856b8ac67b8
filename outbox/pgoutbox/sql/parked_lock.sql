-- Has relays that park or block rows of this shard wait. No row may become blocked behind a row
-- that has just been released.
SELECT s.shard FROM {shards} s
WHERE s.shard = (SELECT o.shard FROM {outbox} o WHERE o.seq = $1 AND o.state = 2) FOR UPDATE
