-- Settings of a transaction of the ledger's own. Key look-ups must use the primary key whatever the statistics say: a
-- plan made while the table was empty would scan it when it is large. $1: lock_timeout; $2: idle time-out;
-- $3: whether commits must be durable whatever the session says.
SELECT set_config('enable_seqscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('lock_timeout', $1::text, true),
       set_config('idle_in_transaction_session_timeout', $2::text, true),
       CASE WHEN $3::boolean THEN set_config('synchronous_commit', 'on', true) END
