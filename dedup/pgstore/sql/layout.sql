-- Which layout these tables have. Those of before there were two have no such column.
SELECT coalesce((SELECT to_jsonb(s) ->> 'layout' FROM {schema}.idem_schema s ORDER BY s.version LIMIT 1), 'readable')
