-- The layout of these tables. Tables made before there were two layouts lack the column.
SELECT coalesce((SELECT to_jsonb(s) ->> 'layout' FROM {schema}.idem_schema s ORDER BY s.version LIMIT 1), 'readable')
