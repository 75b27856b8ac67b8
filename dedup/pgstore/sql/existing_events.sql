-- Like existing_keys.sql, for the transaction of the effects: a row that waits for this copy is
-- locked until the commit.
WITH r AS MATERIALIZED (
    {requests}
), seen AS MATERIALIZED (
    SELECT r.n, r.to_retry, r.retention, {k.key}, k.xmin AS version,
           k.origin_topic, k.origin_partition, k.origin_offset, k.origin_time, k.reason, k.schema_version, k.result,
           {answer}
    FROM r JOIN {schema}.{events_read} k
      ON ({k.key}) = ({r.key})
    WHERE k.xmin IS DISTINCT FROM pg_current_xact_id_if_assigned()::xid
), locked AS MATERIALIZED (
    SELECT s.*
    FROM seen s JOIN {schema}.{events} k
      ON ({k.key}) = ({s.key})
    WHERE s.answer = 'grant' AND k.xmin = s.version
    ORDER BY {k.key}
    FOR UPDATE OF k
), granted AS (
    UPDATE {schema}.{events} k
    SET {grant}
    FROM locked l
    WHERE ({k.key}) = ({l.key})
    RETURNING l.n, {k.fence} AS fence, l.origin_topic, l.origin_partition, l.origin_offset, l.origin_time
)
SELECT n, 'fresh' AS answer, fence, 0 AS failures, 0 AS takeovers, 0::bigint AS wait,
       origin_topic, origin_partition, origin_offset, origin_time, NULL::text AS reason, NULL::bigint AS schema_version,
       NULL::bytea AS result
FROM granted
UNION ALL
SELECT n, answer, 0, 0, 0, 0,
       origin_topic, origin_partition, origin_offset, origin_time,
       CASE WHEN answer LIKE '%dead' THEN reason END, CASE WHEN answer = 'done' THEN schema_version END,
       CASE WHEN answer = 'done' THEN result END
FROM seen
WHERE answer <> 'grant'
UNION ALL
SELECT n, 'too-old', 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM r
WHERE r.old AND NOT EXISTS ( -- in the snapshot of seen, and by this transaction
    SELECT FROM {schema}.{events} k
    WHERE ({k.key}) = ({r.key})
)
