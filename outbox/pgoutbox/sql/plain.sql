-- What is read here has an index that gives its order. A server that believes that there are few rows, since there were when it last
-- looked, would rather read all of them and sort.
SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true)
