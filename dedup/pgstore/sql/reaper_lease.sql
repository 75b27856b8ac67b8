-- Takes or renews the lease of a reaper ($3), by compare-and-set on the server's clock.
INSERT INTO {schema}.idem_leases AS l (name, token, lease_until)
VALUES ($3, $1::uuid, clock_timestamp() + $2::bigint * interval '1 microsecond')
ON CONFLICT (name) DO UPDATE SET token = excluded.token, lease_until = excluded.lease_until
WHERE l.token = excluded.token OR l.lease_until < clock_timestamp()
RETURNING 1
