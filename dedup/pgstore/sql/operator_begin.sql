-- Settings of an operator's transaction, whatever the session has (P-27). $1: lock_timeout; $2:
-- statement_timeout and idle time-out.
SELECT set_config('lock_timeout', $1::text, true),
       set_config('statement_timeout', $2::text, true),
       set_config('idle_in_transaction_session_timeout', $2, true)
