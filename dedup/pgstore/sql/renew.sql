-- Renews leases. A row outlives its lease by as much as before.
WITH r AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], {arrays@3}) WITH ORDINALITY AS r(token, {key}, n)
), held AS MATERIALIZED (
    SELECT r.*
    FROM r JOIN {schema}.{keys} k
      ON ({k.key}) = ({r.key})
    WHERE k.token = r.token AND k.status = 'claimed'
    ORDER BY {k.key}
    FOR UPDATE OF k
), renewed AS (
    UPDATE {schema}.{keys} k
    SET lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond',
        expires_at = clock_timestamp() + $2::bigint * interval '1 microsecond' + (k.expires_at - k.lease_until),
        updated_at = clock_timestamp()
    FROM held h
    WHERE ({k.key}) = ({h.key})
)
SELECT n FROM held
