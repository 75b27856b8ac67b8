package pgstore

import (
	"errors"

	"github.com/idem-go/idem/dedup"
)

// handle runs fn in the transaction and commits. name is the session's name outside the
// transaction.
func (r *txRun) handle(name string) error {
	r.lent = &handlerTx{Tx: r.tx, outside: name,
		marked: name != r.conn.Conn().PgConn().ParameterStatus(nameParameter)}
	done, err := r.fn(r.lent)
	r.lent.close()
	if errors.Is(err, dedup.ErrAbandoned) {
		r.abandon()
		return r.takeBackLate(err)
	}
	return r.unwritten(r.finishRun(done, err))
}

// finishRun ends the transaction after fn has returned.
func (r *txRun) finishRun(done []dedup.Completion, err error) error {
	if _, ok := errors.AsType[*dedup.TxEndedError](err); ok {
		if r.conn.Conn().IsClosed() {
			return r.takeBackLate(err)
		}
		return r.takeBack(err)
	}
	if err != nil {
		return r.undone(err, r.handlerFailed(err))
	}
	if err := r.handlerLeft(); err != nil {
		return r.undone(err, err)
	}
	if err := r.flush(); err != nil {
		if errors.Is(err, errBusy) {
			return nil
		}
		return err
	}
	return r.commit(done)
}
