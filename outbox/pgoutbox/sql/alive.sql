INSERT INTO {relays} AS r (relay, alive_until)
VALUES ($1, clock_timestamp() + $2::bigint * interval '1 microsecond')
ON CONFLICT (relay) DO UPDATE SET alive_until = excluded.alive_until
