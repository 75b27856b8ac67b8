-- Gives claims back. A repeat finds its own release and changes no row.
WITH r AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::boolean[], $4::boolean[], $5::boolean[], {arrays@6}) WITH ORDINALITY
             AS r(token, retention, failed, uncertain, undone, {key}, n)
), held AS MATERIALIZED (
    SELECT r.*, k.status = 'claimed' AS open
    FROM r JOIN {schema}.{keys} k
      ON ({k.key}) = ({r.key})
    WHERE k.token = r.token AND k.status IN ('claimed', 'released')
    ORDER BY {k.key}
    FOR UPDATE OF k
), ended AS (
    UPDATE {schema}.{keys} k
    SET status = 'released',
        failures = k.failures + h.failed::int,
        uncertain = k.uncertain OR h.uncertain,
        fingerprint = CASE WHEN k.uncertain OR NOT h.undone THEN k.fingerprint END,
        lease_until = NULL,
        expires_at = greatest(k.expires_at, clock_timestamp() + h.retention * interval '1 microsecond'),
        updated_at = clock_timestamp()
    FROM held h
    WHERE h.open
      AND ({k.key}) = ({h.key})
)
SELECT n FROM held
