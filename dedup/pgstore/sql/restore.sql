-- Restores the session's own settings for the handler. $1: whether to restore lock_timeout; a group
-- keeps its short one. The result is the number of the transaction, by which take_back.sql finds
-- its rows and pg_xact_status its end.
SELECT pg_current_xact_id_if_assigned()::text,
       CASE WHEN $1::boolean THEN set_config('lock_timeout', split_part(s, ' ', 1), true) END,
       set_config('statement_timeout', split_part(s, ' ', 2), true),
       set_config('enable_seqscan', split_part(s, ' ', 3), true),
       set_config('enable_hashjoin', split_part(s, ' ', 4), true),
       set_config('enable_mergejoin', split_part(s, ' ', 5), true),
       set_config('plan_cache_mode', split_part(s, ' ', 6), true)
FROM (SELECT current_setting('idem.session') AS s) saved
