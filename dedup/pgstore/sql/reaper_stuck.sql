-- Claims whose lease ended a while ago ($1) and that nobody has taken over since. Looked for, never touched.
SELECT count(*) FROM {schema}.{keys}
WHERE status = 'claimed' AND lease_until < clock_timestamp() - $1::bigint * interval '1 microsecond'
