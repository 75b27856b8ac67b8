package mysql_test

import (
	"context"
	"database/sql"
	"testing"

	my "github.com/go-sql-driver/mysql"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/cuttest"
	"github.com/stretchr/testify/require"
)

// P-11: the outcome of a COMMIT on a connection that was cut.
func TestConnectionCutAtCommit_P11(t *testing.T) { cuttest.AtCommit(t, cutSite) }

// P-16: a server that does not answer a COMMIT holds the call for ten seconds.
func TestUnansweredCommit_P16(t *testing.T) {
	t.Parallel()
	cuttest.Unanswered(t, cutSite)
}

func cutSite(t testing.TB) cuttest.Site {
	cfg, err := my.ParseDSN(newTables(t))
	require.NoError(t, err)
	return cuttest.Site{
		Addr: cfg.Addr,
		Open: func(t testing.TB, addr string) *sqlstore.Store {
			at := cfg.Clone()
			at.Addr = addr
			return open(t, at.FormatDSN())
		},
		Insert: func(ctx context.Context, tx *sql.Tx, id string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", id)
			return err
		},
		Count: func(t testing.TB, s *sqlstore.Store, id string) (n int) {
			require.NoError(t, siteOf(s).db.QueryRowContext(t.Context(),
				"SELECT count(*) FROM effects WHERE name = ?", id).Scan(&n))
			return n
		},
	}
}
