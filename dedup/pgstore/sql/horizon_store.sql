-- Moves the horizon of a scope ($1) to a time ($2), never back, and its cut-off ($3). No row is
-- deleted yet: a running claim may not have seen the horizon.
INSERT INTO {schema}.idem_horizons AS h (scope, before, cutoff)
VALUES ($1::text, $2::timestamptz, $3::timestamptz)
ON CONFLICT (scope) DO UPDATE
SET before = greatest(h.before, excluded.before), cutoff = excluded.cutoff, updated_at = clock_timestamp()
RETURNING before
