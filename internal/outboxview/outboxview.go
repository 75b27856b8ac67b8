// Package outboxview reads the state of an outbox in Postgres for operators: the tables, the
// backlog, and the shards of each relay. It only reads.
package outboxview

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// Limit is the greatest count of rows.
const Limit = 100_000

// maxShares bounds the shards and relays that are read.
const maxShares = 10_000

// tables are the tables of an outbox.
var tables = []string{
	"idem_outbox", "idem_outbox_shards", "idem_outbox_relays", "idem_outbox_schema",
}

// Layout describes the tables of an outbox.
type Layout struct {
	// Schema is the schema of the tables. Empty: no table exists.
	Schema string
	// Version is the version of the newest migration. 0: there is no migration, or this role may
	// not read it.
	Version int
	// Missing are the tables that do not exist.
	Missing []string
}

// There reports whether an outbox exists, complete or not.
func (l *Layout) There() bool { return len(l.Missing) < len(tables) }

// Problem returns the missing tables with the remedy, or an empty string. [pgoutbox.Outbox.Check]
// finds all other problems.
func (l *Layout) Problem() string {
	switch {
	case !l.There():
		return "the tables are not there: idem migrate up --outbox"
	case len(l.Missing) > 0:
		return fmt.Sprintf("%s not there: idem migrate up --outbox", strings.Join(l.Missing, ", "))
	}
	return ""
}

// Unfit reports whether an error of [pgoutbox.Outbox.Check] means that the outbox must not be used.
// Otherwise the database did not answer, and the check has no result.
func Unfit(err error) bool {
	var setup *dedup.SetupError
	return errors.As(err, &setup) || err != nil && !errors.Is(err, dedup.ErrUnavailable)
}

// Fix returns the remedy for an error of [pgoutbox.Outbox]. It is empty if the error has none, such as
// that of a database that did not answer.
func Fix(err error) string {
	if setup, ok := errors.AsType[*dedup.SetupError](err); ok {
		return setup.Fix
	}
	return ""
}

// Find looks for the tables in schema. With an empty schema Find uses the search path. Missing
// tables are no error.
func Find(ctx context.Context, pool *pgxpool.Pool, schema string) (l Layout, err error) {
	var names []string
	for _, name := range tables {
		names = append(names, pgschema.Table(schema, name))
	}
	rows, err := pool.Query(ctx, `SELECT coalesce(c.oid IS NULL, true), coalesce(s.nspname, '')
		FROM unnest($1::text[]) WITH ORDINALITY AS n (name, i)
		LEFT JOIN pg_class c ON c.oid = to_regclass(n.name)
		LEFT JOIN pg_namespace s ON s.oid = c.relnamespace ORDER BY i`, names)
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
	versions := pgschema.Table(schema, "idem_outbox_schema")
	err = pool.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+versions).Scan(&l.Version)
	if pgschema.Code(err) == pgschema.NoRight {
		err = nil
	}
	return l, err
}

// Status is the backlog of an outbox, and the shards of its relays.
type Status struct {
	// Waiting counts the rows to be published, up to [Limit].
	Waiting int64 `json:"waiting"`
	// Oldest is the age of the oldest waiting row, in seconds. Zero: no row waits.
	Oldest float64 `json:"oldest_seconds"`
	// Parked counts the rows that the relay has given up, up to [Limit].
	Parked int64 `json:"parked"`
	// Blocked counts the rows that wait behind a parked row, up to [Limit].
	Blocked int64 `json:"blocked"`
	// Relays are the relays by name. The first one, without a name, has the shards that no relay
	// holds, if there are any.
	Relays []Share `json:"relays"`
}

// Ask reads the status of the outbox in schema. With an empty schema Ask uses the search path. Only
// indexes and a bounded number of rows are read.
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
		return Status{}, fmt.Errorf("read the shards of the relays: %w", err)
	}
	return Status{
		Waiting: log.Waiting, Oldest: log.Oldest.Seconds(), Parked: log.Parked,
		Blocked: log.Blocked, Relays: relays,
	}, nil
}

// Share is the shards of one relay.
type Share struct {
	// Relay is the ID of the relay. Empty: no relay holds these shards.
	Relay string `json:"relay"`
	// Shards are the numbers of the shards, ascending.
	Shards []int `json:"shards"`
	// Epochs are the epochs of Shards, in the same order.
	Epochs []int64 `json:"epochs"`
	// LeaseLeft is the rest of the lease that ends first, in seconds. Negative: the lease has ended
	// that long ago. Nil: there is no lease.
	LeaseLeft *float64 `json:"lease_left"`
	// Alive means that the relay has called the database within its lease.
	Alive bool `json:"alive"`
}

// Shares returns the shards of each relay, by name. A relay without shards is listed while it is
// alive. With an empty schema Shares uses the search path.
func Shares(ctx context.Context, pool *pgxpool.Pool, schema string) ([]Share, error) {
	rows, err := pool.Query(ctx, `SELECT coalesce(s.relay, r.relay, ''), s.shard, s.epoch,
			(extract(epoch FROM s.lease_until - clock_timestamp()))::float8,
			coalesce(r.alive_until > clock_timestamp(), false)
		FROM `+pgschema.Table(schema, "idem_outbox_shards")+` s
		FULL JOIN `+pgschema.Table(schema, "idem_outbox_relays")+` r ON r.relay = s.relay
		WHERE s.shard IS NOT NULL OR r.alive_until > clock_timestamp()
		ORDER BY 1, 2 LIMIT $1`, maxShares)
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

// Counted writes a count of rows. At [Limit] the result is "n or more".
func Counted(n int64) string {
	if n >= Limit {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}
