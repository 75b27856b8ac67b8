-- Answers for the keys that insert_keys.sql found taken. This is a statement of its own, because
-- only a new snapshot shows the changes that insert_keys.sql waited for. Rows that this transaction
-- has just inserted are left out.
--
-- The answer is decided by the snapshot. Then the row is locked, in the order of the keys, and
-- granted only if it is still the same version. A key that has changed in between gets no answer,
-- and the caller asks again.
WITH r AS MATERIALIZED (
    {requests}
    WHERE coalesce(nullif(current_setting('idem.new', true), ''), '0')::bigint < cardinality($10::timestamptz[]) -- otherwise all are new
), seen AS MATERIALIZED (
    SELECT r.n, r.to_retry, r.retention, r.fingerprint, {k.key}, k.xmin AS version, k.status,
           k.lease_until, k.origin_topic, k.origin_partition, k.origin_offset, k.origin_time, k.reason,
           k.schema_version, k.result,
           {answer}
    FROM r JOIN {schema}.{keys_read} k
      ON ({k.key}) = ({r.key})
    WHERE k.xmin IS DISTINCT FROM pg_current_xact_id_if_assigned()::xid
), locked AS MATERIALIZED (
    SELECT s.*
    FROM seen s JOIN {schema}.{keys} k
      ON ({k.key}) = ({s.key})
    WHERE s.answer = 'grant' AND k.xmin = s.version
       OR s.answer = 'mine' AND k.status = 'claimed' AND k.token = ($11::uuid[])[s.n] -- two repeats may run at once
    ORDER BY {k.key}
    FOR UPDATE OF k
), granted AS (
    UPDATE {schema}.{keys} k
    SET status = 'claimed',
        token = ($11::uuid[])[l.n],
        fence = k.fence + (l.answer = 'grant')::int,
        takeovers = k.takeovers + (l.answer = 'grant' AND k.status = 'claimed')::int,
        uncertain = k.uncertain OR (l.answer = 'grant' AND k.status = 'claimed'),
        retry = greatest(k.retry, l.to_retry),
        fingerprint = CASE WHEN k.generation = 0 THEN coalesce(k.fingerprint, l.fingerprint) ELSE k.fingerprint END,
        lease_until = clock_timestamp() + $12::bigint * interval '1 microsecond',
        expires_at = greatest(k.expires_at, clock_timestamp() + ($12::bigint + l.retention) * interval '1 microsecond'),
        updated_at = clock_timestamp()
    FROM locked l
    WHERE ({k.key}) = ({l.key})
    RETURNING l.n, CASE WHEN k.uncertain THEN 'uncertain' ELSE 'fresh' END AS answer, k.fence, k.failures, k.takeovers,
              l.origin_topic, l.origin_partition, l.origin_offset, l.origin_time
)
SELECT n, answer, fence, failures, takeovers, 0::bigint AS wait,
       origin_topic, origin_partition, origin_offset, origin_time, NULL::text AS reason, NULL::bigint AS schema_version,
       NULL::bytea AS result
FROM granted
UNION ALL
SELECT n, answer, 0, 0, 0,
       CASE WHEN answer LIKE '%busy' OR answer = 'conflict mine'
            THEN greatest(1, extract(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint ELSE 0 END,
       origin_topic, origin_partition, origin_offset, origin_time,
       CASE WHEN answer LIKE '%dead' THEN reason END, CASE WHEN answer = 'done' THEN schema_version END,
       CASE WHEN answer = 'done' THEN result END
FROM seen
WHERE answer NOT IN ('mine', 'grant')
UNION ALL
SELECT n, 'too-old', 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM r
WHERE r.old AND NOT EXISTS ( -- in the snapshot of seen, and by this transaction
    SELECT FROM {schema}.{keys} k
    WHERE ({k.key}) = ({r.key})
)
