package main

import (
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idem-go/idem/internal/doctor"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// outboxFlag names the database of an outbox.
type outboxFlag struct{ url string }

func (o *outboxFlag) flags(a *app, f *pflag.FlagSet) {
	url := &urlFlag{
		name: "outbox", env: "IDEM_OUTBOX", use: func(urls []string) { o.url = urls[0] },
	}
	f.Var(
		a.addURLFlag(url),
		url.name,
		"postgres:// `URL` of the database with the outbox, or @FILE (env IDEM_OUTBOX), by "+
			"default --store",
	)
}

// given reports whether the outbox was named by its own flag or variable.
func (o *outboxFlag) given(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("outbox") || os.Getenv("IDEM_OUTBOX") != ""
}

// outboxURL is the flag's, else that of --store if it was given, else IDEM_OUTBOX, else IDEM_STORE.
func (a *app) outboxURL(cmd *cobra.Command, o *outboxFlag) (url, flag string, err error) {
	env := os.Getenv("IDEM_OUTBOX")
	switch {
	case o.url != "":
		return o.url, "--outbox", nil
	case env != "" && !cmd.Flags().Changed("store"):
		return env, "IDEM_OUTBOX", nil
	}
	var all []string
	for _, l := range a.stores {
		if doctor.KindOf(l) == doctor.Postgres {
			all = append(all, l)
		}
	}
	switch {
	case len(all) == 1:
		return all[0], "--store", nil
	case len(all) > 1:
		return "", "", usage("several stores: give the outbox with --outbox")
	}
	return "", "", usage("no outbox: give --outbox, a postgres:// URL")
}

// openedOutbox is an outbox and where it lies.
type openedOutbox struct {
	name   string // without credentials
	schema string // or "": through the search path
	pool   *pgxpool.Pool
	box    *pgoutbox.Outbox
}

// openOutbox makes a pool. An unreachable server, or missing tables, are errors of the first query.
func (a *app) openOutbox(cmd *cobra.Command, o *outboxFlag, use poolUse) (*openedOutbox, error) {
	url, flag, err := a.outboxURL(cmd, o)
	if err != nil {
		return nil, err
	}
	a.secrets.AddURL(url)
	if scheme, _, ok := strings.Cut(url, "://"); !ok ||
		scheme != "postgres" && scheme != "postgresql" {
		return nil, usage("%s: a URL such as postgres://user:password@host:5432/database", flag)
	}
	if a.schema != "" && !schemaName.MatchString(a.schema) {
		return nil, usage("--schema: %q does not match %s", a.schema, schemaName)
	}
	pool, err := a.postgresPoolFor(cmd.Context(), flag, url, use)
	if err != nil {
		return nil, err
	}
	b := &openedOutbox{
		name: postgresName(&pool.Config().ConnConfig.Config), schema: a.schema, pool: pool,
	}
	if a.schema != "" {
		b.name += "/" + a.schema
	}
	b.box = pgoutbox.New(pool, b.storeOptions()...)
	return b, nil
}

func (b *openedOutbox) storeOptions() []pgoutbox.Option {
	if b.schema == "" {
		return nil
	}
	return []pgoutbox.Option{pgoutbox.InSchema(b.schema)}
}

func (b *openedOutbox) qualified(name string) string { return pgschema.Table(b.schema, name) }

// askWait bounds each question to the database.
const askWait = 30 * time.Second
