-- Whether it is this transaction's turn at a key, for who does not want to wait for another one ($1: the key's number). A
-- statement of its own: it is over when the insert that could wait begins, and no plan can ask twice or not at all.
SELECT set_config('idem.turn', pg_try_advisory_xact_lock($1::bigint)::text, true) = 'true'
