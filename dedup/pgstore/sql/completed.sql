-- Finds claims that an earlier call has completed. complete.sql has waited for calls that ran beside
-- it, so this statement comes later and sees their rows.
SELECT r.n
FROM unnest($1::uuid[], {arrays@2}) WITH ORDINALITY AS r(token, {key}, n)
JOIN {schema}.{keys} k ON ({k.key}) = ({r.key})
WHERE k.token = r.token AND k.status IN ('done', 'dead', 'moved')
