-- Indexes have the order of the queries here. With statistics from a time of few rows, the server
-- would read all rows and sort them instead.
SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true)
