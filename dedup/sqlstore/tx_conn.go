package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// onConn runs fn in a transaction on db that the statements COMMIT and ROLLBACK end. The COMMIT
// ends with ctx, and the ROLLBACK after endTimeout. See [Dialect].EndBySQL.
func (s *Store) onConn(ctx context.Context, db *sql.DB, fn func(Querier) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended { // inside a transaction, maybe
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		_ = conn.Close() // it is closed already if the transaction has not ended
	}()
	err = conn.Raw(func(c any) error {
		b, ok := c.(driver.ConnBeginTx)
		if !ok {
			return errors.ErrUnsupported
		}
		_, err := b.BeginTx(ctx, driver.TxOptions{Isolation: driver.IsolationLevel(s.d.Isolation)})
		return err
	})
	if err != nil {
		return err
	}
	if err = fn(conn); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, failed := conn.ExecContext(end, "ROLLBACK")
		ended = failed == nil
		return err
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	ended = err == nil
	return err
}
