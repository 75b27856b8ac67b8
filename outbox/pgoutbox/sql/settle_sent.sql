-- Ends the rows that were sent, and returns the shards that were lost. A number that belongs to
-- another event is left alone: a fail-over may give out numbers twice. The rows are locked in their
-- order, so that two relays that both seem to hold one shard cannot deadlock.
WITH held AS (
    SELECT h.shard, h.epoch FROM unnest($1::smallint[], $2::bigint[]) AS h(shard, epoch)),
mine AS MATERIALIZED (
    SELECT s.shard FROM {shards} s JOIN held h ON h.shard = s.shard AND h.epoch = s.epoch
    WHERE s.relay = $3),
sent AS MATERIALIZED (
    SELECT o.seq FROM {outbox} o
    WHERE o.seq = ANY ($4::bigint[]) AND o.state <> 1
      AND ((o.seq, o.event_id) IN ( -- IS TRUE: no join, which could read the whole table
          SELECT r.seq, r.id FROM unnest($4::bigint[], $5::text[]) AS r(seq, id))) IS TRUE
      AND o.shard = ANY (ARRAY(SELECT m.shard FROM mine m)) -- a join would read mine for each row
    ORDER BY o.seq FOR UPDATE OF o),
ended AS (
    {end})
SELECT h.shard FROM held h WHERE h.shard NOT IN (SELECT m.shard FROM mine m) ORDER BY h.shard
