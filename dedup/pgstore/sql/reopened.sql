-- A row that was reopened and has not been claimed since: nothing else waits for attempt 0 of a later generation.
SELECT generation FROM {schema}.{table}
WHERE ({key}) = ({one@1})
  AND status = 'moved' AND retry = 0 AND generation > 0 AND record_version = 1
