-- Answers without a lock or a write: one probe of the key's index for each request. OFFSET keeps
-- the planner from starting with all rows that share the other columns of the key. A look before a
-- claim hides Busy answers: the claim may find the event free.
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
