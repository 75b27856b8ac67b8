-- Inserts the same key again: one row the first time, none the second time.
INSERT INTO {schema}.{table} ({columns})
VALUES ({values})
ON CONFLICT ({unique}) DO NOTHING
