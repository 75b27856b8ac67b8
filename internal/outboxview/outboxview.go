// Package outboxview tells what people want to know of an outbox in Postgres: whether its tables are there, how much waits and
// for how long, and which relay publishes what. It only reads.
package outboxview

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// Limit is where counting of rows ends.
const Limit = 100_000

// maxShares bounds how many shards and relays are read.
const maxShares = 10_000

// tables are those of an outbox.
var tables = []string{"idem_outbox", "idem_outbox_shards", "idem_outbox_relays", "idem_outbox_schema"}

// Layout is what is known of the tables of an outbox.
type Layout struct {
	// Schema is where they lie.
	Schema string
	// Version is that of the newest migration; 0: there is none, or this role must not know.
	Version int
	// Missing are the tables that are not there.
	Missing []string
}

// There reports whether there is an outbox, complete or not.
func (l *Layout) There() bool { return len(l.Missing) < len(tables) }

// Problem is what is missing, or empty. What else there may be is for [pgoutbox.Outbox.Check].
func (l *Layout) Problem() string {
	switch {
	case !l.There():
		return "the tables are not there: idem migrate up --outbox"
	case len(l.Missing) > 0:
		return fmt.Sprintf("%s not there: idem migrate up --outbox", strings.Join(l.Missing, ", "))
	}
	return ""
}

// Find looks for the tables, in a schema or, if that is empty, through the search path.
func Find(ctx context.Context, pool *pgxpool.Pool, schema string) (l Layout, err error) {
	var names []string
	for _, name := range tables {
		names = append(names, pgschema.Table(schema, name))
	}
	rows, err := pool.Query(ctx, `SELECT coalesce(c.oid IS NULL, true), coalesce(s.nspname, '') FROM unnest($1::text[]) WITH ORDINALITY AS n (name, i)
		LEFT JOIN pg_class c ON c.oid = to_regclass(n.name) LEFT JOIN pg_namespace s ON s.oid = c.relnamespace ORDER BY i`, names)
	if err != nil {
		return l, err
	}
	var missing bool
	var where string
	i := 0
	_, err = pgx.ForEachRow(rows, []any{&missing, &where}, func() error {
		if missing {
			l.Missing = append(l.Missing, tables[i])
		} else {
			l.Schema = where
		}
		i++
		return nil
	})
	if err != nil || len(l.Missing) > 0 {
		return l, err
	}
	err = pool.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+pgschema.Table(schema, "idem_outbox_schema")).Scan(&l.Version)
	if pgschema.Code(err) == pgschema.NoRight {
		err = nil
	}
	return l, err
}

// Status is how much waits in an outbox, and who publishes it.
type Status struct {
	// Waiting rows are to be published; counting stops at [Limit].
	Waiting int64 `json:"waiting"`
	// Oldest is for how many seconds the oldest of them has waited. Zero if there is none.
	Oldest float64 `json:"oldest_seconds"`
	// Parked rows will never be published as they are, and Blocked ones wait behind them; counting stops at [Limit].
	Parked  int64 `json:"parked"`
	Blocked int64 `json:"blocked"`
	// Relays have their shards, in the order of their names; first those shards that nobody has.
	Relays []Share `json:"relays"`
}

// Ask asks an outbox in a schema or, if that is empty, one that is found through the search path. It reads indexes only, and
// a bounded number of rows.
func Ask(ctx context.Context, pool *pgxpool.Pool, schema string) (Status, error) {
	var opts []pgoutbox.Option
	if schema != "" {
		opts = append(opts, pgoutbox.InSchema(schema))
	}
	log, err := pgoutbox.New(pool, opts...).Backlog(ctx, Limit)
	if err != nil {
		return Status{}, err
	}
	relays, err := Shares(ctx, pool, schema)
	if err != nil {
		return Status{}, fmt.Errorf("who publishes: %w", err)
	}
	return Status{Waiting: log.Waiting, Oldest: log.Oldest.Seconds(), Parked: log.Parked, Blocked: log.Blocked, Relays: relays}, nil
}

// Share is what a relay holds, and for how long.
type Share struct {
	// Relay is its name; empty: nobody.
	Relay string `json:"relay"`
	// Shards are the numbers of its shards, and Epochs those of the shards, in their order.
	Shards []int   `json:"shards"`
	Epochs []int64 `json:"epochs"`
	// LeaseLeft is in seconds, of the lease that ends first; negative: for how long it is over. Nil: there is none.
	LeaseLeft *float64 `json:"lease_left"`
	// Alive says that the relay has shown itself within its lease.
	Alive bool `json:"alive"`
}

// Shares asks who publishes what. A relay that holds nothing is listed too, as long as it lives.
func Shares(ctx context.Context, pool *pgxpool.Pool, schema string) ([]Share, error) {
	rows, err := pool.Query(ctx, `SELECT coalesce(s.relay, r.relay, ''), s.shard, s.epoch,
			(extract(epoch FROM s.lease_until - clock_timestamp()))::float8, coalesce(r.alive_until > clock_timestamp(), false)
		FROM `+pgschema.Table(schema, "idem_outbox_shards")+` s FULL JOIN `+pgschema.Table(schema, "idem_outbox_relays")+` r ON r.relay = s.relay
		WHERE s.shard IS NOT NULL OR r.alive_until > clock_timestamp() ORDER BY 1, 2 LIMIT $1`, maxShares)
	if err != nil {
		return nil, err
	}
	var all []Share
	var relay string
	var shard *int
	var epoch *int64
	var left *float64
	var alive bool
	_, err = pgx.ForEachRow(rows, []any{&relay, &shard, &epoch, &left, &alive}, func() error {
		if len(all) == 0 || all[len(all)-1].Relay != relay {
			all = append(all, Share{Relay: relay, Shards: []int{}, Epochs: []int64{}, Alive: alive})
		}
		s := &all[len(all)-1]
		if shard == nil {
			return nil
		}
		s.Shards, s.Epochs = append(s.Shards, *shard), append(s.Epochs, *epoch)
		if left != nil && (s.LeaseLeft == nil || *left < *s.LeaseLeft) {
			s.LeaseLeft = new(*left)
		}
		return nil
	})
	return all, err
}

// Counted writes a number of rows that was counted up to [Limit].
func Counted(n int64) string {
	if n >= Limit {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}
