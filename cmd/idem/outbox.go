package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

func newOutboxCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbox",
		Short: "What waits in an outbox, and what a person must decide about",
	}
	cmd.AddCommand(newOutboxStatusCmd(a), newOutboxParkedCmd(a), newOutboxRetryCmd(a), newOutboxSkipCmd(a))
	return cmd
}

// outboxFlag names the database of an outbox.
type outboxFlag struct{ url string }

func (o *outboxFlag) flags(f *pflag.FlagSet) {
	f.Var(&outboxValue{o}, "outbox", "postgres:// `URL` of the database with the outbox (env IDEM_OUTBOX), by default --ledger")
}

// outboxValue is a flag whose value no help shows (G-04).
type outboxValue struct{ o *outboxFlag }

// Set implements pflag.Value.
func (v *outboxValue) Set(s string) error { v.o.url = s; return nil }

// String implements pflag.Value.
func (v *outboxValue) String() string { return "" }

// Type implements pflag.Value.
func (v *outboxValue) Type() string { return "url" }

// outboxURL is the flag's, else that of --ledger if it was given, else IDEM_OUTBOX, else IDEM_LEDGER.
func (a *app) outboxURL(cmd *cobra.Command, o *outboxFlag) (url, flag string, err error) {
	env := os.Getenv("IDEM_OUTBOX")
	switch {
	case o.url != "":
		return o.url, "--outbox", nil
	case env != "" && !cmd.Flags().Changed("ledger"):
		return env, "IDEM_OUTBOX", nil
	}
	var all []string
	for _, l := range a.ledgers {
		if ledgerKind(l) == kindPostgres {
			all = append(all, l)
		}
	}
	switch {
	case len(all) == 1:
		return all[0], "--ledger", nil
	case len(all) > 1:
		return "", "", usage("which of the ledgers has the outbox? give --outbox")
	}
	return "", "", usage("which outbox? give --outbox, a postgres:// URL")
}

// openedOutbox is an outbox and where it lies.
type openedOutbox struct {
	name   string // without credentials
	schema string // or "": through the search path
	pool   *pgxpool.Pool
	box    *pgoutbox.Outbox
}

// openOutbox makes a pool. That the server cannot be reached, or the tables are not there, is for the first question to say.
func (a *app) openOutbox(cmd *cobra.Command, o *outboxFlag, use poolUse) (*openedOutbox, error) {
	url, flag, err := a.outboxURL(cmd, o)
	if err != nil {
		return nil, err
	}
	a.keepSecret(url)
	if scheme, _, ok := strings.Cut(url, "://"); !ok || scheme != "postgres" && scheme != "postgresql" {
		return nil, usage("%s: a URL such as postgres://user:password@host:5432/database", flag)
	}
	if a.schema != "" && !schemaName.MatchString(a.schema) {
		return nil, usage("--schema: %q does not match %s", a.schema, schemaName)
	}
	pool, err := a.postgresPoolFor(cmd.Context(), flag, url, use)
	if err != nil {
		return nil, err
	}
	b := &openedOutbox{name: postgresName(&pool.Config().ConnConfig.Config), schema: a.schema, pool: pool}
	if a.schema != "" {
		b.name += "/" + a.schema
	}
	b.box = pgoutbox.New(pool, b.options()...)
	return b, nil
}

func (b *openedOutbox) options() []pgoutbox.Option {
	if b.schema == "" {
		return nil
	}
	return []pgoutbox.Option{pgoutbox.InSchema(b.schema)}
}

func (b *openedOutbox) table(name string) string { return inSchema(b.schema, name) }

func inSchema(schema, name string) string {
	if schema == "" {
		return name
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

// askWait bounds each question to the database.
const askWait = 30 * time.Second

// outboxTables are those of an outbox.
var outboxTables = []string{"idem_outbox", "idem_outbox_shards", "idem_outbox_relays", "idem_outbox_schema"}

// outboxLayout is what is known of the tables of an outbox.
type outboxLayout struct {
	schema  string
	version int      // 0: there is none, or this role must not know
	missing []string // of outboxTables
}

// there reports whether there is an outbox, complete or not.
func (l *outboxLayout) there() bool { return len(l.missing) < len(outboxTables) }

// problem is what is missing, or empty. What else there may be is for pgoutbox.Outbox.Check.
func (l *outboxLayout) problem() string {
	switch {
	case !l.there():
		return "the tables are not there: idem migrate up --outbox"
	case len(l.missing) > 0:
		return fmt.Sprintf("%s not there: idem migrate up --outbox", strings.Join(l.missing, ", "))
	}
	return ""
}

const codeNoRight = "42501"

// findOutbox looks for the tables.
func findOutbox(ctx context.Context, pool *pgxpool.Pool, schema string) (l outboxLayout, err error) {
	var names []string
	for _, name := range outboxTables {
		names = append(names, inSchema(schema, name))
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
			l.missing = append(l.missing, outboxTables[i])
		} else {
			l.schema = where
		}
		i++
		return nil
	})
	if err != nil || len(l.missing) > 0 {
		return l, err
	}
	err = pool.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+inSchema(schema, "idem_outbox_schema")).Scan(&l.version)
	if pgCode(err) == codeNoRight {
		err = nil
	}
	return l, err
}

// relayShare is what a relay holds, and for how long.
type relayShare struct {
	Relay  string  `json:"relay"` // "": nobody
	Shards []int   `json:"shards"`
	Epochs []int64 `json:"epochs"` // of the shards, in their order
	// LeaseLeft is in seconds, of the lease that ends first; negative: for how long it is over. Nil: there is none.
	LeaseLeft *float64 `json:"lease_left"`
	// Alive says that the relay has shown itself within its lease.
	Alive bool `json:"alive"`
}

// shares asks who publishes what. A relay that holds nothing is listed too, as long as it lives.
func shares(ctx context.Context, pool *pgxpool.Pool, schema string) ([]relayShare, error) {
	rows, err := pool.Query(ctx, `SELECT coalesce(s.relay, r.relay, ''), s.shard, s.epoch,
			(extract(epoch FROM s.lease_until - clock_timestamp()))::float8, coalesce(r.alive_until > clock_timestamp(), false)
		FROM `+inSchema(schema, "idem_outbox_shards")+` s FULL JOIN `+inSchema(schema, "idem_outbox_relays")+` r ON r.relay = s.relay
		WHERE s.shard IS NOT NULL OR r.alive_until > clock_timestamp() ORDER BY 1, 2 LIMIT 10000`)
	if err != nil {
		return nil, err
	}
	var all []relayShare
	var relay string
	var shard *int
	var epoch *int64
	var left *float64
	var alive bool
	_, err = pgx.ForEachRow(rows, []any{&relay, &shard, &epoch, &left, &alive}, func() error {
		if len(all) == 0 || all[len(all)-1].Relay != relay {
			all = append(all, relayShare{Relay: relay, Shards: []int{}, Epochs: []int64{}, Alive: alive})
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

// backlogLimit is where counting ends.
const backlogLimit = 100_000

func counted(n int64) string {
	if n >= backlogLimit {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}

var _ outbox.Store = (*pgoutbox.Outbox)(nil)
