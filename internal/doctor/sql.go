package doctor

import (
	"context"
	"net/url"
	"strings"
)

// checkSQL makes the checks of a worker's start. The checks of the server are for Postgres.
func (d *examination) checkSQL(ctx context.Context, r *Findings, l *Store) {
	const id = "sql.store"
	if l.OpenSQL == nil {
		r.say(Unknown, id, string(SQL), "this program cannot open the store", "")
		return
	}
	store, on, err := l.OpenSQL(ctx)
	if err != nil {
		r.say(Bad, id, string(SQL), d.text(err), "")
		return
	}
	warnings, err := store.Check(ctx)
	for _, w := range warnings {
		r.say(Warn, id, on, d.text(errText(w)), "")
	}
	switch {
	case err != nil:
		r.say(Bad, id, on, d.text(err), "")
	case len(warnings) == 0:
		r.say(OK, id, on, "the tables are there, and the settings are safe", "")
	}
}

// errText is a text of the store as an error.
type errText string

func (e errText) Error() string { return string(e) }

// checkSQLAccess looks at the URL of a store in SQLite, MariaDB or MySQL.
func checkSQLAccess(r *Findings, l *Store) {
	const tls = "settings.store.tls"
	if strings.HasPrefix(l.URL, "sqlite:") {
		r.say(Skipped, tls, string(SQL), "the store is a file", "")
	} else {
		u, err := url.Parse(l.URL)
		if err != nil {
			r.say(Bad, tls, string(SQL), badURL, "mysql://user:password@host:3306/database")
			return
		}
		const remedy = "tls=true in the URL, without allowFallbackToPlaintext"
		mysqlTransport(u.Hostname(), u.Query()).judge(r, string(SQL), remedy, remedy)
	}
	r.say(Skipped, "settings.pool", string(SQL), "the URL has no size of a pool", "")
}
