-- As in the readable layout.
WITH new AS (
INSERT INTO {schema}.idempotency_keys_compact
       (kind, id, status, fingerprint, generation, retry, origin, origin_offset, origin_time, token, lease_until, expires_at)
SELECT {kind}, r.id, 'claimed', substr({fingerprint}, 1, 16), {generation}, {retry}, r.origin, r.pos, r.at, r.token,
       clock_timestamp() + $13::bigint * interval '1 microsecond',
       clock_timestamp() + ($13::bigint + {retention}) * interval '1 microsecond'
FROM unnest($3::integer[], $4::uuid[], $10::timestamptz[], $11::bigint[], $12::uuid[]{arrays}) AS r(origin, id, at, pos, token{columns})
WHERE ({too_old}) IS NOT TRUE
ORDER BY {kind}, r.id
ON CONFLICT (kind, id) DO NOTHING
RETURNING 1
)
SELECT count(*), set_config('idem.new', count(*)::text, true) FROM new
