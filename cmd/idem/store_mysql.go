package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/internal/redact"
)

const mysqlExample = "mysql://user:password@host:3306/database"

// openMySQL makes a client of MariaDB or MySQL. An unreachable server is an error of the first
// call.
func (a *app) openMySQL(text string) (*openedStore, error) {
	cfg, err := mysqlConfig(text)
	if err != nil || redact.SplitsPassword(text) {
		return nil, usage(
			"--store: this URL cannot be parsed (not shown, as a password may be in it): %s, "+
				"special "+
				"characters in the password percent-encoded; parameters as go-sql-driver has "+
				"them, such as ?tls=true",
			mysqlExample,
		)
	}
	a.secrets.Add(cfg.Passwd)
	connector, err := driver.NewConnector(cfg)
	if err != nil {
		return nil, usage("--store: the parameters of the URL do not go together")
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(4)
	a.closers = append(a.closers, func() { _ = db.Close() })
	s := mysql.New(db)
	return &openedStore{name: "mysql " + cfg.Addr + "/" + cfg.DBName, store: s, sql: s, db: db}, nil
}

// mysqlConfig reads a URL. The error may show parts of a password.
func mysqlConfig(text string) (*driver.Config, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	name := strings.TrimPrefix(u.Path, "/")
	if u.Hostname() == "" || name == "" || strings.Contains(name, "/") || u.Fragment != "" {
		return nil, errors.New("host and database are missing")
	}
	addr := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	cfg, err := driver.ParseDSN("tcp(" + addr + ")/" + url.PathEscape(name) + "?" + u.RawQuery)
	if err != nil {
		return nil, err
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Timeout = cmp.Or(cfg.Timeout, connectTimeout)
	cfg.Logger = quiet{} // errors are returned as well
	return cfg, nil
}

// mysqlTables looks for the tables of a database.
func mysqlTables(ctx context.Context, db *sql.DB) tables {
	t := schemaVersion(ctx, db)
	var refused *driver.MySQLError
	if errors.As(t.err, &refused) && refused.Number == 1146 { // the table does not exist
		return tables{}
	}
	return t
}
