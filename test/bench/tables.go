package main

import (
	"context"
	"fmt"
)

// fillSQL writes events that were handled long ago. Their IDs have the shape of the topic's.
const fillSQL = `
	INSERT INTO processed_events (tenant, scope, event_type, event_id, expires_at, origin_topic, origin_partition, origin_offset, origin_time)
	SELECT '', $1, $2, %s, clock_timestamp() + interval '7 days', $3, n %% 6, n, clock_timestamp() - interval '1 day'
	FROM generate_series(1, $4::bigint) AS n`

const (
	randomSQL  = `gen_random_uuid()::text`
	orderedSQL = `overlay(overlay(gen_random_uuid()::text placing lpad(to_hex((1735689600000 + n) / 65536), 8, '0') from 1 for 8)
		placing lpad(to_hex((1735689600000 + n) % 65536), 4, '0') || '-7' from 10 for 6)`
)

// fill puts the wanted number of events into the store.
func (l *lab) fill(ctx context.Context, x *run) error {
	if x.row.fill == 0 {
		return nil
	}
	id := orderedSQL
	if x.row.spec.random {
		id = randomSQL
	}
	if _, err := l.pool.Exec(ctx, fmt.Sprintf(fillSQL, id), x.scope, eventType, x.topic.name, x.row.fill); err != nil {
		return err
	}
	_, err := l.pool.Exec(ctx, "VACUUM ANALYZE processed_events")
	return err
}

// storeSize returns the bytes that Postgres keeps per event.
func (x *run) storeSize(ctx context.Context, events int) (total, indexes float64, err error) {
	var rows, all, index int64
	err = x.pool.QueryRow(ctx, `SELECT count(*), pg_total_relation_size('processed_events'), pg_indexes_size('processed_events')
		FROM processed_events`).
		Scan(&rows, &all, &index)
	if err == nil && int(rows) != events {
		err = fmt.Errorf("WRONG: the store has %d rows for %d events", rows, events)
	}
	return float64(all) / float64(events), float64(index) / float64(events), err
}
