package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// kindsConn is a pool of one slow connection. The database has many kinds, and no record of the ID.
type kindsConn struct {
	driver.Conn
	kinds int           // that were not read yet
	slow  time.Duration // of each statement
}

func (c *kindsConn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c *kindsConn) Driver() driver.Driver                        { return lentDriver{} }
func (c *kindsConn) Close() error                                 { return nil }

func (c *kindsConn) QueryContext(
	ctx context.Context, text string, _ []driver.NamedValue,
) (driver.Rows, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(c.slow):
	}
	if strings.Contains(text, " FROM idempotency_keys") {
		return &kindRows{}, nil
	}
	page := min(c.kinds, kindsAtOnce)
	c.kinds -= page
	return &kindRows{left: page}, nil
}

// kindRows are kinds without the ID.
type kindRows struct{ left int }

func (r *kindRows) Columns() []string { return []string{"tenant", "scope", "event_type", "count"} }
func (r *kindRows) Close() error      { return nil }

func (r *kindRows) Next(row []driver.Value) error {
	if r.left == 0 {
		return io.EOF
	}
	r.left--
	copy(row, []driver.Value{fmt.Sprint(r.left), "scope", "type", int64(0)})
	return nil
}

// The time of a page of kinds is bounded, and the number of pages is not.
func TestFindOfManyKindsOnASlowServer(t *testing.T) {
	for pages, slow := range map[int]time.Duration{20: silence / 4, 1: silence + 1} {
		t.Run(fmt.Sprint(pages), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := &kindsConn{kinds: pages * kindsAtOnce, slow: slow}
				db := sql.OpenDB(conn)
				defer db.Close()
				s := New(db, nil, &Dialect{Name: "slow", Param: func(int) string { return "?" },
					Classify: func(error) Class { return Unknown }})
				began := time.Now()
				_, err := s.Find(t.Context(), "", "id")
				if slow > silence {
					require.ErrorIs(t, err, dedup.ErrUnavailable)
					require.Equal(t, silence, time.Since(began))
					return
				}
				require.NoError(t, err)
				require.Zero(t, conn.kinds)
				require.Greater(t, time.Since(began), silence)

				conn.kinds = pages * kindsAtOnce
				ctx, cancel := context.WithTimeout(t.Context(), 2*silence)
				defer cancel()
				_, err = s.Find(ctx, "", "id")
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		})
	}
}
