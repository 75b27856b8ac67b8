-- Settings of a transaction for a handler. The session's settings are kept for restore.sql. $1:
-- lock_timeout; $2: statement_timeout of the claim; $3: idle time-out ('' keeps the session's); $4:
-- whether the commit must be durable; $5: whether to mark the session, for handlerTx.
SELECT set_config('idem.session', concat_ws(' ', current_setting('lock_timeout'), current_setting('statement_timeout'),
                                            current_setting('enable_seqscan'), current_setting('enable_hashjoin'),
                                            current_setting('enable_mergejoin'), current_setting('plan_cache_mode')), true),
       set_config('lock_timeout', $1::text, true),
       set_config('statement_timeout', $2::text, true),
       CASE WHEN $3::text <> '' THEN set_config('idle_in_transaction_session_timeout', $3, true) END,
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       CASE WHEN $4::boolean THEN set_config('synchronous_commit', 'on', true) END,
       CASE WHEN $5::boolean
            THEN set_config('application_name', left(current_setting('application_name'), 50) || ' [group]', true) END
