-- Records that the scope and the group consume these topics.
INSERT INTO {schema}.idem_scope_topics (topic, scope, consumer_group)
SELECT t.topic, $1::text, $2::text FROM unnest($3::text[]) AS t(topic)
ORDER BY t.topic COLLATE "C"
ON CONFLICT (topic, scope, consumer_group) DO NOTHING
