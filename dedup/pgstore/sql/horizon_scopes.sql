-- The scopes whose rows may be deleted, with the consumed time of the partition furthest behind and
-- the horizon. $1: scopes of the wall clock; $2: the age of a horizon before the rows behind it are
-- deleted. A partition that went back since the horizon was made keeps its rows.
WITH behind AS (
    SELECT DISTINCT ON (scope) scope, topic, partition, consumed_until
    FROM {schema}.idem_progress
    ORDER BY scope, consumed_until NULLS FIRST, topic, partition
), scopes AS (
    SELECT DISTINCT w.scope COLLATE "C" AS scope, NULL::text AS topic, NULL::integer AS partition,
           clock_timestamp() AS consumed_until
    FROM unnest($1::text[]) AS w(scope)
    UNION ALL
    SELECT scope, topic, partition, consumed_until FROM behind WHERE scope <> ALL ($1::text[])
)
SELECT s.scope, s.topic, s.partition, s.consumed_until, h.before,
       CASE WHEN h.cutoff IS NOT NULL AND s.consumed_until IS NOT NULL THEN least(h.cutoff, s.consumed_until) END AS cutoff,
       coalesce(h.updated_at < clock_timestamp() - $2::bigint * interval '1 microsecond', true) AS ripe
FROM scopes s LEFT JOIN {schema}.idem_horizons h ON h.scope = s.scope
ORDER BY s.scope
