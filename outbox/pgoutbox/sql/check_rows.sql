SELECT (SELECT count(*) FROM {shards} WHERE shard >= 0 AND shard < $1::int), (SELECT coalesce(max(version), 0) FROM {schema_version})
