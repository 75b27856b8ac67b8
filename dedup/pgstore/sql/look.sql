-- Answers without a lock or a write: one probe of the key's index for each request. OFFSET keeps the planner from beginning
-- with the rows of the table that share all but the last column of the key. A group that looks before it claims hides what is
-- busy: it may be over when it claims.
SELECT r.n, k.answer, 0::bigint, 0::integer, 0::integer, CASE WHEN k.answer LIKE '%busy' THEN k.wait ELSE 0 END,
       k.origin_topic, k.origin_partition, k.origin_offset, k.origin_time,
       CASE WHEN k.answer LIKE '%dead' THEN k.reason END, CASE WHEN k.answer = 'done' THEN k.schema_version END,
       CASE WHEN k.answer = 'done' THEN k.result END
FROM ({requests}) r
CROSS JOIN LATERAL (
    SELECT k.origin_topic, k.origin_partition, k.origin_offset, k.origin_time, k.reason, k.schema_version, k.result,
           {wait} AS wait, {answer}
    FROM {schema}.{table} k
    WHERE ({k.key}) = ({r.key})
    OFFSET 0
) k
WHERE k.answer NOT IN ('mine', 'grant'{hidden})
