-- Ends claims. A repeat changes no row, and completed.sql finds its completion. A success may end a
-- claim that was released as uncertain, if no worker has claimed since (rule 13): its token is still
-- there.
--
-- The update locks the rows in the order of their keys, also those that another repeat has just
-- completed. It must lock no row after that: two repeats would wait for each other.
UPDATE {schema}.{keys} k
SET status = h.status,
    retry = CASE WHEN h.status = 'moved' THEN h.retry ELSE k.retry END,
    reason = nullif(h.reason, ''),
    schema_version = h.schema_version,
    result = h.result,
    lease_until = NULL,
    expires_at = greatest(k.expires_at, clock_timestamp() + h.retention * interval '1 microsecond'),
    updated_at = clock_timestamp()
FROM (SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bytea[],
                           {arrays@8}) WITH ORDINALITY
               AS r(token, retention, status, reason, retry, schema_version, result, {key}, n)
      ORDER BY {order}) h
WHERE ({k.key}) = ({h.key}) AND k.token = h.token
  AND (k.status = 'claimed' OR k.status = 'released' AND k.uncertain AND h.status = 'done')
RETURNING h.n
