status = 'done',
        fence = k.fence + 1,
        retry = greatest(k.retry, l.to_retry),
        expires_at = greatest(k.expires_at, clock_timestamp() + l.retention * interval '1 microsecond'),
        updated_at = clock_timestamp()
