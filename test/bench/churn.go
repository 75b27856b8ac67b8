package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
)

// Churn: the bytes per event after a week, and after a second week in which the reaper deletes the
// events of the first. The calendar lies in the past, and an hour passes as fast as its events can
// be written.

const (
	churnWeek = 7 * 24           // hours, which is also the retention
	churnTick = time.Millisecond // grace of the reaper: no claim is under way
)

// churnInsert are the statements that write events as the store does. $1 is the scope, and $2 is
// the topic. $3 is the time of the first event, and $4 the microseconds between two events. $5 and
// $6 are the first and the last event.
var churnInsert = map[bool]string{
	false: `INSERT INTO processed_events (tenant, scope, event_type, event_id, created_at, expires_at, origin_topic, origin_partition,
			origin_offset, origin_time, fingerprint)
		SELECT '', $1, '` + eventType + `', %s, at, at + interval '7 days', $2, n %% 6, n, at - interval '20 ms', int4send(n::int4)
		FROM generate_series($5::bigint, $6::bigint) AS n, LATERAL (SELECT $3::timestamptz + n * $4::bigint * interval '1 microsecond') AS t (at)
		ORDER BY n`,
	true: `INSERT INTO {schema}.processed_events_compact (kind, id, origin, origin_offset, origin_time, made, expires)
		SELECT k.kind, (%s)::uuid, o.origin, n,
			date_trunc('milliseconds', at - interval '20 ms') + (1 + n %% 999) * interval '1 microsecond',
			ceil(date_part('epoch', at) - 946684800)::integer, ceil((date_part('epoch', at) + 604800) / 60)::integer
		FROM {schema}.idem_kinds k, generate_series($5::bigint, $6::bigint) AS n
		JOIN {schema}.idem_origins o ON o.topic = $2 AND o.partition = n %% 6,
			LATERAL (SELECT $3::timestamptz + n * $4::bigint * interval '1 microsecond') AS t (at)
		WHERE k.scope = $1 ORDER BY n`,
}

// churnOrderedSQL is a UUID of version 7, from the clock of a producer that is up to 2 s late.
const churnOrderedSQL = `(SELECT overlay(overlay(gen_random_uuid()::text placing lpad(to_hex(ms / 65536), 8, '0') from 1 for 8)
	placing lpad(to_hex(ms % 65536), 4, '0') || '-7' from 10 for 6)
	FROM (SELECT (extract(epoch FROM at) * 1000 - random() * 2000)::bigint + 0 * n) AS v (ms))`

// churnKindSQL writes the kind and the origins of the compact layout.
const churnKindSQL = `
	WITH kind AS (INSERT INTO {schema}.idem_kinds (tenant, scope, event_type, form) VALUES ('', $1, '` + eventType + `', 2))
	INSERT INTO {schema}.idem_origins (topic, partition) SELECT $2, p FROM generate_series(0, 5) AS p`

// churned is the size of a table at the end of a day, in bytes per event.
type churned struct {
	rows, key, rest float64 // the heap, the index of the key, and all other indexes
}

func (c churned) all() float64 { return c.rows + c.key + c.rest }

// churnResult is a table over two weeks.
type churnResult struct {
	name    string
	events  int       // that are remembered
	days    []churned // 14
	vacuums int       // in the second week
	took    time.Duration
}

// churn fills the tables of both layouts.
func (b *bench) churn(ctx context.Context, events int) (all []churnResult, err error) {
	for _, random := range []bool{false, true} {
		for _, compact := range []bool{false, true} {
			x := &run{lab: b.lab, row: &row{compact: compact, spec: spec{random: random}}}
			res, err := x.twoWeeks(ctx, events)
			if err != nil {
				return all, fmt.Errorf("churn: %s: %w", res.name, err)
			}
			all = append(all, res)
		}
	}
	return all, nil
}

// calendar is the past in which the events were written.
type calendar struct {
	begins  time.Time
	between time.Duration // two events
	hourly  int           // events
}

func newCalendar(now time.Time, events int) calendar {
	hourly := max(1, events/churnWeek)
	c := calendar{between: (time.Hour / time.Duration(hourly)).Truncate(time.Microsecond), hourly: hourly}
	// Two weeks end before the minute that the store subtracts from the present.
	c.begins = now.Add(-2*churnWeek*time.Hour - 5*time.Minute).Truncate(time.Microsecond)
	return c
}

// at is the time of event n.
func (c calendar) at(n int) time.Time { return c.begins.Add(time.Duration(n) * c.between) }

func (x *run) twoWeeks(ctx context.Context, events int) (res churnResult, err error) {
	res.name = map[bool]string{false: "readable", true: "compact"}[x.row.compact] +
		map[bool]string{false: ", ordered", true: ", random"}[x.row.spec.random]
	cal := newCalendar(time.Now(), events)
	res.events = cal.hourly * churnWeek
	if err := x.lab.reset(ctx, 0); err != nil {
		return res, err
	}
	const topic = "churn"
	scope := x.lab.id
	fill := func(text string) string { return strings.ReplaceAll(text, "{schema}", x.compactSchema()) }
	if x.row.compact {
		if _, err := x.pool.Exec(ctx, fill(churnKindSQL), scope, topic); err != nil {
			return res, err
		}
	}
	id := churnOrderedSQL
	if x.row.spec.random {
		id = randomSQL
	}
	insert := fill(fmt.Sprintf(churnInsert[x.row.compact], id))
	store := pgstore.New(x.pool, x.layout()...)
	reaper := pgstore.NewReaper(store, pgstore.ReaperConfig{Grace: churnTick, Pause: -1, Batch: 10_000})
	began, deleted, vacuumed := time.Now(), int64(0), int64(0)
	for hour := range 2 * churnWeek {
		from := hour * cal.hourly
		if _, err := x.pool.Exec(ctx, insert, scope, topic, cal.begins, cal.between.Microseconds(), from, from+cal.hourly-1); err != nil {
			return res, err
		}
		if hour >= churnWeek-1 {
			progress := make([]dedup.Progress, 6)
			for p := range progress {
				next := from + cal.hourly
				progress[p] = dedup.Progress{Topic: topic, Partition: int32(p), Next: int64(next), Time: cal.at(next)}
			}
			if err := store.RecordProgress(ctx, scope, progress); err != nil {
				return res, err
			}
			reaped, err := reaper.RunOnce(ctx)
			if err != nil {
				return res, err
			}
			deleted += reaped.Events
		}
		ran, err := x.vacuumWhenDue(ctx, deleted-vacuumed)
		if err != nil {
			return res, err
		}
		if ran {
			vacuumed = deleted
			res.vacuums++
		}
		if (hour+1)%24 == 0 {
			size, err := x.churned(ctx, res.events)
			if err != nil {
				return res, err
			}
			res.days = append(res.days, size)
			logf("  %s, day %d: %.0f bytes per event (rows %.0f, key %.0f), %d deleted (%.0fs)",
				res.name, len(res.days), size.all(), size.rows, size.key, deleted, time.Since(began).Seconds())
		}
	}
	res.took = time.Since(began)
	return res, x.checkChurn(ctx, int64(2*res.events)-deleted)
}

// vacuumWhenDue does the work of autovacuum by its rule, for so many dead rows: autovacuum itself
// looks once a minute, which are hours of the calendar.
func (x *run) vacuumWhenDue(ctx context.Context, dead int64) (ran bool, err error) {
	err = x.pool.QueryRow(ctx, `SELECT $2 > 50 + greatest(reltuples, 0) * coalesce((SELECT option_value::float8
			FROM pg_options_to_table(reloptions) WHERE option_name = 'autovacuum_vacuum_scale_factor'), 0.2)
		FROM pg_class WHERE oid = $1::regclass`, x.events(), float64(dead)).Scan(&ran)
	if err != nil || !ran {
		return false, err
	}
	_, err = x.pool.Exec(ctx, "VACUUM ANALYZE "+x.events())
	return true, err
}

// churned returns the present size of the table.
func (x *run) churned(ctx context.Context, events int) (churned, error) {
	var heap, key, rest int64
	err := x.pool.QueryRow(ctx, `SELECT pg_table_size($1::regclass),
			sum(pg_relation_size(indexrelid)) FILTER (WHERE indisprimary)::bigint,
			sum(pg_relation_size(indexrelid)) FILTER (WHERE NOT indisprimary)::bigint
		FROM pg_index WHERE indrelid = $1::regclass`, x.events()).Scan(&heap, &key, &rest)
	per := func(bytes int64) float64 { return float64(bytes) / float64(events) }
	return churned{rows: per(heap), key: per(key), rest: per(rest)}, err
}

// checkChurn fails if the reaper has deleted another number of events than it reported.
func (x *run) checkChurn(ctx context.Context, want int64) error {
	var rows int64
	if err := x.pool.QueryRow(ctx, "SELECT count(*) FROM "+x.events()).Scan(&rows); err != nil {
		return err
	}
	if rows != want {
		return fmt.Errorf("WRONG: the table has %d rows, and %d were expected", rows, want)
	}
	return nil
}

// churnTable has a row for each layout.
func churnTable(b *strings.Builder, list []churnResult) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| bytes per event, of %d | rows | key | other indexes | all, after a week | all, after 8 to 14 days | vacuums | took |\n"+
		"|---|---:|---:|---:|---:|---|---:|---:|\n", list[0].events)
	for _, r := range list {
		var second []string
		for _, d := range r.days[7:] {
			second = append(second, fmt.Sprintf("%.0f", d.all()))
		}
		last := r.days[len(r.days)-1]
		fmt.Fprintf(b, "| %s | %.0f | %.0f | %.0f | %.0f | %s | %d | %.0f s |\n",
			r.name, last.rows, last.key, last.rest, r.days[6].all(), strings.Join(second, ", "), r.vacuums, r.took.Seconds())
	}
}
