-- Locks a queue against other changes until the commit.
SELECT FROM {schema}.deferred_queues WHERE (scope, topic, queue) = ($1::text, $2::text, $3::bytea) FOR UPDATE
