package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/idem-go/idem/dedup/pgstore"
)

// fillSQL writes events that were handled long ago, as the store writes them. Their IDs have the
// shape of the topic's.
const fillSQL = `
	INSERT INTO processed_events (tenant, scope, event_type, event_id, expires_at, origin_topic, origin_partition, origin_offset,
		origin_time, fingerprint)
	SELECT '', $1, $2, %s, clock_timestamp() + interval '7 days', $3, n %% 6, n, clock_timestamp() - interval '1 day', int4send(n::int4)
	FROM generate_series(1, $4::bigint) AS n`

// fillCompactSQL writes the same into the compact layout. The microseconds are the fingerprint.
const fillCompactSQL = `
	WITH kind AS (
		INSERT INTO {schema}.idem_kinds (tenant, scope, event_type, form) VALUES ('', $1, $2, 2) RETURNING kind
	), origin AS (
		INSERT INTO {schema}.idem_origins (topic, partition) SELECT $3, p FROM generate_series(0, 5) AS p RETURNING origin, partition
	)
	INSERT INTO {schema}.processed_events_compact (kind, id, origin, origin_offset, origin_time, made, expires)
	SELECT kind.kind, (%s)::uuid, origin.origin, n,
		date_trunc('milliseconds', clock_timestamp() - interval '1 day') + (1 + n %% 999) * interval '1 microsecond',
		ceil(date_part('epoch', clock_timestamp()) - 946684800)::integer,
		ceil((date_part('epoch', clock_timestamp()) + 604800) / 60)::integer
	FROM kind, generate_series(1, $4::bigint) AS n JOIN origin ON origin.partition = n %% 6 ORDER BY n`

const (
	randomSQL  = `gen_random_uuid()::text`
	orderedSQL = `overlay(overlay(gen_random_uuid()::text placing lpad(to_hex((1735689600000 + n) / 65536), 8, '0') from 1 for 8)
		placing lpad(to_hex((1735689600000 + n) % 65536), 4, '0') || '-7' from 10 for 6)`
)

// layout returns the options of the row's store in Postgres.
func (x *run) layout() []pgstore.Option {
	if x.row.compact {
		return []pgstore.Option{pgstore.Compact(), pgstore.InSchema(x.compactSchema())}
	}
	return nil
}

// events is the table with the row's remembered events.
func (x *run) events() string {
	if x.row.compact {
		return x.compactSchema() + ".processed_events_compact"
	}
	return x.schema() + ".processed_events"
}

// fill puts the wanted number of events into the store.
func (l *lab) fill(ctx context.Context, x *run) error {
	if x.row.fill == 0 {
		return nil
	}
	id, text := orderedSQL, fillSQL
	if x.row.spec.random {
		id = randomSQL
	}
	if x.row.compact {
		text = strings.ReplaceAll(fillCompactSQL, "{schema}", l.compactSchema())
	}
	if _, err := l.pool.Exec(ctx, fmt.Sprintf(text, id), x.scope, eventType, x.topic.name, x.row.fill); err != nil {
		return err
	}
	_, err := l.pool.Exec(ctx, "VACUUM ANALYZE "+x.events())
	return err
}

// storeSize returns the bytes that Postgres keeps per event.
func (x *run) storeSize(ctx context.Context, events int) (total, indexes float64, err error) {
	var rows, all, index int64
	err = x.pool.QueryRow(ctx, "SELECT count(*), pg_total_relation_size($1::regclass), pg_indexes_size($1::regclass) FROM "+x.events(),
		x.events()).Scan(&rows, &all, &index)
	if err == nil && int(rows) != events {
		err = fmt.Errorf("WRONG: the store has %d rows for %d events", rows, events)
	}
	return float64(all) / float64(events), float64(index) / float64(events), err
}
