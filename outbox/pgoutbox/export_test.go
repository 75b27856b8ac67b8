package pgoutbox

// Texts returns the statements for a schema, for tests of their plans.
func Texts(schema string) map[string]string {
	q := newStatements(schema)
	return map[string]string{"plain": q.plain, "fetch": q.fetch, "fetchSkip": q.fetchSkip, "settleSent": q.settleSent, "settleKept": q.settleKept,
		"settleRows": q.settleRows, "settleParked": q.settleParked, "settleBlocked": q.settleBlocked, "purge": q.purge,
		"backlog": q.backlog, "parked": q.parked, "parkedLock": q.parkedLock, "retry": q.parkedRetry}
}
