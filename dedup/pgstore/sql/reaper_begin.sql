-- Settings of a transaction of maintenance, whatever the session has (P-27). Old rows must be found
-- by the index on expires_at, in its order, whatever the statistics. If no index serves, the plan has
-- a scan that is off, and its estimated cost makes Postgres compile the statement (jit). That takes
-- 100 ms and more. $1: statement_timeout and idle time-out.
SELECT set_config('statement_timeout', $1::text, true),
       set_config('idle_in_transaction_session_timeout', $1, true),
       set_config('lock_timeout', '5s', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true),
       set_config('jit', 'off', true)
