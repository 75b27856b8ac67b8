-- Claims of events that never ran, committed by the handler of another one ($1 is its transaction), wait for their copies
-- again: whoever comes at the same attempt is granted.
WITH held AS MATERIALIZED (
    SELECT {k.key}
    FROM unnest({arrays@2}) AS r({key})
    JOIN {schema}.{events} k
      ON ({k.key}) = ({r.key})
    WHERE k.xmin = $1::text::xid AND {k.status} = 'done'
    ORDER BY {k.key}
    FOR UPDATE OF k
)
UPDATE {schema}.{events} k
SET {wait_again}
FROM held h
WHERE ({k.key}) = ({h.key})
