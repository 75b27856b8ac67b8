-- Tries the advisory lock of a key ($1: its number) without waiting. This is a statement of its
-- own: it ends before the insert that could wait begins, and no plan can skip or repeat it.
SELECT set_config('idem.turn', pg_try_advisory_xact_lock($1::bigint)::text, true) = 'true'
