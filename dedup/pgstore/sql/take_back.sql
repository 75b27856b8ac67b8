-- Lets events wait for their copies that have not run, but whose claims the handler of another
-- event has committed ($1 is its transaction). A copy at the same attempt is granted.
WITH held AS MATERIALIZED (
    SELECT {k.key}
    FROM unnest({arrays@2}) AS r({key})
    JOIN {schema}.{events} k
      ON ({k.key}) = ({r.key})
    WHERE k.xmin = $1::text::xid8::xid AND {k.status} = 'done'
    ORDER BY {k.key}
    FOR UPDATE OF k
)
UPDATE {schema}.{events} k
SET {wait_again}
FROM held h
WHERE ({k.key}) = ({h.key})
