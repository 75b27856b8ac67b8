k.partition, coalesce(k.name, k.queue) AS name, p.tenant, p.event_type, p.event_id, p.generation, p.retry,
       ceil(extract(epoch FROM p.due - clock_timestamp()) * 1000000)::bigint AS wait, p.blocked,
       p.origin_topic, p.origin_partition, p.origin_offset, p.origin_time, p.data
