-- Settings of a transaction of the store's own. Key look-ups must use the primary key, whatever the
-- statistics: a plan made for an empty table would scan a large one. One plan serves all calls:
-- planning these statements costs several times their work for one key. $1: lock_timeout; $2:
-- statement_timeout and idle time-out, because those of the session are for the application (P-27);
-- $3: whether commits must be durable.
SELECT set_config('enable_seqscan', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('lock_timeout', $1::text, true),
       set_config('statement_timeout', $2::text, true),
       set_config('idle_in_transaction_session_timeout', $2, true),
       CASE WHEN $3::boolean THEN set_config('synchronous_commit', 'on', true) END
