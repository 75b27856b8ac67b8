-- Ends claims. A repeat finds its own completion and changes no row. A success may end a claim that
-- was released as uncertain, if no worker has claimed since (rule 13): its token is still there.
WITH r AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bytea[],
                         {arrays@8}) WITH ORDINALITY
             AS r(token, retention, status, reason, retry, schema_version, result, {key}, n)
), held AS MATERIALIZED (
    SELECT r.*, k.status IN ('claimed', 'released') AS open
    FROM r JOIN {schema}.{keys} k
      ON ({k.key}) = ({r.key})
    WHERE k.token = r.token
      AND (k.status IN ('claimed', 'done', 'dead', 'moved') OR k.status = 'released' AND k.uncertain AND r.status = 'done')
    ORDER BY {k.key}
    FOR UPDATE OF k
), ended AS (
    UPDATE {schema}.{keys} k
    SET status = h.status,
        retry = CASE WHEN h.status = 'moved' THEN h.retry ELSE k.retry END,
        reason = nullif(h.reason, ''),
        schema_version = h.schema_version,
        result = h.result,
        lease_until = NULL,
        expires_at = greatest(k.expires_at, clock_timestamp() + h.retention * interval '1 microsecond'),
        updated_at = clock_timestamp()
    FROM held h
    WHERE h.open
      AND ({k.key}) = ({h.key})
)
SELECT n FROM held
