true AS tx, k.tenant, k.scope, k.event_type, {shown_id} AS event_id, k.status, k.record_version, false AS uncertain,
    0 AS failures, 0 AS takeovers, k.generation, k.retry, k.fence, NULL::bigint AS lease,
    k.origin_topic, k.origin_partition, k.origin_offset, k.origin_time, k.reason,
    k.created_at, coalesce(k.updated_at, k.created_at) AS changed, k.expires_at,
    octet_length(k.fingerprint) AS compared
