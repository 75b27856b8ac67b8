package pgoutbox

import "github.com/jackc/pgx/v5"

// Texts returns the statements for a schema, for tests of their plans.
func Texts(schema string) map[string]string {
	q := newStatements(schema)
	return map[string]string{"plain": q.plain, "fetch": q.fetch, "fetchSkip": q.fetchSkip, "settleSent": q.settleSent, "settleKept": q.settleKept,
		"settleRows": q.settleRows, "settleParked": q.settleParked, "settleBlocked": q.settleBlocked, "purge": q.purge,
		"backlog": q.backlog, "parked": q.parked, "parkedLock": q.parkedLock, "retry": q.parkedRetry}
}

// QueuedBytes returns the memory of the entries in the queue of tx.
func (o *Outbox) QueuedBytes(tx pgx.Tx) (int, error) {
	q, err := o.queueOf(tx)
	if err != nil {
		return 0, err
	}
	return q.bytes, nil
}
