-- Topics that are on record under other scopes only, and those scopes.
SELECT topic, array_agg(DISTINCT scope ORDER BY scope)
FROM {schema}.idem_scope_topics
WHERE topic = ANY ($2::text[])
GROUP BY topic
HAVING bool_and(scope <> $1::text)
ORDER BY topic
