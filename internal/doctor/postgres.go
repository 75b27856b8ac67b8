package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/pgschema"
)

func (d *examination) checkPostgres(ctx context.Context, r *Findings, l *Store) {
	cfg, err := l.config()
	if err != nil {
		return // checkSettings has reported the URL
	}
	on := postgresName(&cfg.ConnConfig.Config)
	pool, refused := l.Pool, false
	if pool == nil {
		if pool, refused, err = openAsWorker(ctx, l.URL); err != nil {
			d.unreachable(r, on, err)
			return
		}
		defer pool.Close()
	}
	f, err := d.askPostgres(ctx, pool)
	if err != nil {
		d.unreachable(r, on, err)
		return
	}
	f.refused, f.given = refused, l.Pool != nil
	r.say(OK, "postgres.connect", on, fmt.Sprintf("as %s", f.role), "")
	var own Findings
	d.checkPostgresFacts(&own, on, f, d.poolOf(cfg))
	warnings, err := d.checkStore(ctx, pool)
	d.checkTables(r, on, own, f, warnings, err)
	*r = append(*r, own...)
	d.checkOutbox(ctx, r, on, f.role, pool)
	// postgres.store has reported missing tables (42P01).
	if err := d.scopes.read(ctx, pool, d.in.Schema); err != nil && pgschema.Code(err) != "42P01" {
		r.say(Unknown, "store.scope", on, d.text(err), storeRemedy(err, f.role, d.in.Schema))
	}
}

// unreachable reports a store that does not answer.
func (d *examination) unreachable(r *Findings, on string, err error) {
	detail := d.text(err)
	if on == unnamed {
		detail = "no connection, and the name of the store has an '@' " +
			"(the error is not shown, it may quote a part of a password)"
	}
	r.say(Bad, "postgres.connect", on, detail, "")
}

// openAsWorker connects as pgstore.Open does. If a pooler refuses the parameters of pgstore.Open,
// openAsWorker connects without.
func openAsWorker(ctx context.Context, url string) (pool *pgxpool.Pool, refused bool, err error) {
	for _, refused = range []bool{false, true} {
		var cfg *pgxpool.Config
		if cfg, err = pgxpool.ParseConfig(url); err != nil {
			return nil, false, err
		}
		cfg.MaxConns = 2 // the workers need the others
		if !refused {
			pgstore.Configure(cfg)
		} else {
			cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
		if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
			return nil, false, err
		}
		if err = pool.Ping(ctx); err == nil {
			return pool, refused, nil
		}
		pool.Close()
		if pgschema.Code(err) != "08P01" { // "unsupported startup parameter"
			return nil, false, err
		}
	}
	return nil, false, err
}

// checkStore runs the check of a worker's start, for the layout of the tables.
func (d *examination) checkStore(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	var opts []pgstore.Option
	if d.opt.Durable {
		opts = append(opts, pgstore.Durable())
	}
	if d.in.Schema != "" {
		opts = append(opts, pgstore.InSchema(d.in.Schema))
	}
	tables, err := pgschema.FindTables(ctx, pool, d.in.Schema)
	if err == nil && tables.Layout == "compact" {
		opts = append(opts, pgstore.Compact())
	}
	return pgstore.New(pool, opts...).Check(ctx)
}

// storeWarnings counts the warnings of the store's own check that other checks report: of fsync and
// full_page_writes together, of synchronous_commit, and of two settings of sessions. The store has
// others, such as that of a pool without pgstore.Configure.
func (f *pgFacts) storeWarnings(durable bool) (n int) {
	for _, warned := range []bool{
		!f.on("fsync") || !f.on("full_page_writes"),
		f.settings["synchronous_commit"].value == "off" && !durable,
		f.checksNoClient(),
		f.keepsIdle(),
	} {
		if warned {
			n++
		}
	}
	return n
}

// checkTables reports the results of the store's own check that no other check has reported.
func (d *examination) checkTables(
	r *Findings, on string, own Findings, f *pgFacts, warnings []string, err error,
) {
	const id = "postgres.store"
	for _, o := range own {
		readOnly := o.ID == "postgres.standby" || o.ID == "postgres.read_only"
		if readOnly && o.Verdict == Bad && err != nil {
			r.say(Skipped, id, on, "cannot be tested on a read-only server", "")
			return
		}
	}
	switch code := pgschema.Code(err); {
	case code == pgschema.NoRight:
		r.say(Unknown, id, on, "not known: "+d.text(err), grant(f.role, d.in.Schema))
	case err != nil && len(f.tables) == 0 && !f.hidden:
		r.say(Bad, id, on, "the tables do not exist, are not in the search path of the URL, or in "+
			"a schema without USAGE for the role: "+d.text(err),
			"IDEM_STORE=<url> idem migrate up, or "+useSchema(f.role, d.in.Schema))
	case err != nil:
		r.say(Bad, id, on, d.text(err), "")
	case len(warnings) > f.storeWarnings(d.opt.Durable):
		r.say(Warn, id, on, strings.Join(warnings, "; "), "")
	default:
		r.say(OK, id, on, "tables, versions, unique keys and collations are correct", "")
	}
}
