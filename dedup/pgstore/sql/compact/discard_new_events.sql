-- As in the readable layout.
INSERT INTO {schema}.{events} ({key}, made, expires, rest)
SELECT {one@3}, ceil(c.now - 946684800)::integer, ceil((c.now + $2::bigint / 1e6::float8) / 60)::integer,
       jsonb_build_object('status', 'dead', 'reason', $1::text)
FROM (SELECT date_part('epoch', clock_timestamp()) AS now OFFSET 0) c
ON CONFLICT ({key}) DO NOTHING
