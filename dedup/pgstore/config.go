package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Configure sets session parameters that end the session of a dead worker within about half a
// minute instead of hours. With the session ends the transaction that holds the worker's event.
// Configure sets, unless cfg has a value:
//
//   - keep-alives after 10 s, every 5 s, three of them
//   - tcp_user_timeout of 30 s
//   - client_connection_check_interval of 2 s, for a worker that is killed during a statement
//     (Postgres 14 or later, on Linux, macOS and BSD)
//   - application_name "idem"
//
// Configure also keeps pgx from cancelling a COMMIT that takes too long. A cancelled COMMIT counts
// although the synchronous standbys lack it. For this, Configure adds to BeforeConnect: set a
// BeforeConnect of your own first. [Store.Check] warns if the addition is missing.
//
// A pooler may refuse unknown start-up parameters. Then do not call Configure, and set the
// parameters for the role.
func Configure(cfg *pgxpool.Config) {
	params := cfg.ConnConfig.RuntimeParams
	if params == nil {
		params = make(map[string]string)
		cfg.ConnConfig.RuntimeParams = params
	}
	for name, v := range map[string]string{
		"application_name":                 "idem",
		"client_connection_check_interval": "2000",
		"tcp_keepalives_idle":              "10",
		"tcp_keepalives_interval":          "5",
		"tcp_keepalives_count":             "3",
		"tcp_user_timeout":                 "30000",
	} {
		if _, set := params[name]; !set {
			params[name] = v
		}
	}
	guardCommits(cfg)
}

// Open returns a store with a pool of its own, configured by [Configure]. [Store.Close] closes
// the pool. url is a connection string or URL as pgx reads it, with pool_max_conns and the like.
// Open does not wait for the server. The text of the error never contains url, which may hold a
// password.
func Open(ctx context.Context, url string, opts ...Option) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("pgstore: open: the connection string cannot be parsed " +
			"(not shown, as it may hold a password)")
	}
	Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, New(nil, opts...).db.failed(ctx, "open", err)
	}
	s := New(pool, opts...)
	if s.db.wrong != nil {
		pool.Close()
		return nil, s.db.wrong
	}
	s.owned = true
	return s, nil
}
