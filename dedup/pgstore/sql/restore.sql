-- The handler gets the session's own settings back. $1: whether lock_timeout is one of them; a group keeps its short one.
-- The answer is the transaction by whose number take_back.sql knows its rows.
SELECT pg_current_xact_id_if_assigned()::xid::text,
       CASE WHEN $1::boolean THEN set_config('lock_timeout', split_part(s, ' ', 1), true) END,
       set_config('statement_timeout', split_part(s, ' ', 2), true),
       set_config('enable_seqscan', split_part(s, ' ', 3), true),
       set_config('enable_hashjoin', split_part(s, ' ', 4), true),
       set_config('enable_mergejoin', split_part(s, ' ', 5), true),
       set_config('plan_cache_mode', split_part(s, ' ', 6), true)
FROM (SELECT current_setting('idem.session') AS s) saved
