-- Counts claims whose lease ended a while ago ($1) without a take-over. They stay as they are.
SELECT count(*) FROM {schema}.{keys}
WHERE status = 'claimed' AND lease_until < clock_timestamp() - $1::bigint * interval '1 microsecond'
