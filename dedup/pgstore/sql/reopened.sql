-- A row that was reopened and has not been claimed since: no other row waits for attempt 0 of a
-- later generation. A key with a later claim in the other table does not count.
SELECT generation FROM {schema}.{table} k
WHERE ({key}) = ({one@1})
  AND status = 'moved' AND retry = 0 AND generation > 0 AND record_version = 1
  AND NOT EXISTS (
      SELECT FROM {schema}.{other} WHERE ({key}) = ({one@1}) AND (status <> 'moved' OR retry > 0)
  )
