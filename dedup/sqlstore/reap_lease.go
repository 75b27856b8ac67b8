package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/reaping"
)

// maybe reads the only row of a query, if there is one.
func (w *work) maybe(ctx context.Context, query string, args []any, into ...any) (there bool,
	err error) {
	err = w.row(ctx, query, args, into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Lease takes or renews the lease of the reaper, on the database's clock. The row is that of
// pgstore.
func (h *horizons) Lease(ctx context.Context, mine dedup.Token, length time.Duration) error {
	return h.write(ctx, func(ctx context.Context, w *work) error {
		var token string
		var until int64
		there, err := w.maybe(ctx, "SELECT "+w.d.Token("token")+", "+w.d.Micros("lease_until")+
			" FROM idem_leases WHERE name = "+w.d.Param(1)+w.d.Lock, []any{h.leaseName},
			&token, &until)
		if err == nil {
			err = w.readClock(ctx)
		}
		if err != nil {
			return err
		}
		holder, _ := parseToken(token)
		if there && holder != mine && !micros(until).Before(w.now) {
			return refusal{reaping.ErrElsewhere}
		}
		to := relation{"idem_leases", []string{"name", "token", "lease_until"}, 1}
		write := to.add
		if there {
			write = to.replace
		}
		return write(ctx, w.q, w.d,
			[][]any{{h.leaseName, mine.String(), w.d.Time(w.now.Add(length))}})
	})
}

// Leave ends the lease.
func (h *horizons) Leave(ctx context.Context, mine dedup.Token) error {
	return h.write(ctx, func(ctx context.Context, w *work) error {
		_, err := w.q.ExecContext(ctx, "DELETE FROM idem_leases WHERE name = "+w.d.Param(1)+
			" AND token = "+w.d.Param(2), h.leaseName, mine.String())
		return err
	})
}
