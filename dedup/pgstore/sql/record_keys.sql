false AS tx, k.tenant, k.scope, k.event_type, {shown_id} AS event_id, k.status, k.record_version, k.uncertain,
    k.failures, k.takeovers, k.generation, k.retry, k.fence,
    floor(extract(epoch FROM k.lease_until - clock_timestamp()) * 1000000)::bigint AS lease,
    k.origin_topic, k.origin_partition, k.origin_offset, k.origin_time, k.reason,
    k.created_at, k.updated_at AS changed, k.expires_at,
    octet_length(k.fingerprint) AS compared
