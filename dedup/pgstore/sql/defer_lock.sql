-- Makes all who change a queue wait for each other until they commit.
SELECT FROM {schema}.deferred_queues WHERE (scope, topic, queue) = ($1::text, $2::text, $3::bytea) FOR UPDATE
