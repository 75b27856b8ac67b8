package main

// postgresTxMutants are faults of pgstore around the handler's transaction.
func postgresTxMutants() []mutant {
	pg := func(run string) owner { return served("dedup/pgstore", run, "postgres") }
	return []mutant{
		{
			name: "pg-commit-error-is-success", file: "dedup/pgstore/tx_commit.go",
			old: "\treturn commitError(err)\n", with: "\treturn nil\n",
			promise: "A commit that failed is no success (P-11).",
			tests:   pg("^TestConnectionLostAtCommit_P11$|^TestDeferredConstraintFailsAtCommit$"),
		},
		{
			name: "pg-aborted-transaction-is-committed", file: "dedup/pgstore/handlertx.go",
			old: "\tdefault: // the server would answer COMMIT with ROLLBACK (P-12)\n\t\treturn fmt.Errorf(\"pgstore: %w\", dedup.ErrTxAborted)", with: "\tdefault:\n\t\treturn nil",
			promise: "A swallowed error of a statement is a failure of the event (P-12).",
			tests:   pg("^TestSwallowedErrorIsAFailure_P12$|^TestCheckTx_Rule12$"),
		},
		{
			name: "pg-failed-group-keeps-claims", file: "dedup/pgstore/tx_ended.go",
			old: "its event counts as handled\n\treturn r.takeBack(decision.EndedBySQL(\"pgstore\", err))", with: "its event counts as handled\n\treturn decision.EndedBySQL(\"pgstore\", err)",
			promise: "A COMMIT as SQL and a later failure keep no claim of an event that did not run (rule 12).",
			tests:   pg("^TestTxConformance$/./and_then_failed"),
		},
		{
			name: "pg-lost-connection-hides-a-commit", file: "dedup/pgstore/handlertx.go",
			old: "\tcase status == 'I':", with: "\tcase status == 'I' && !lost:",
			promise: "The loss of the connection does not hide a COMMIT as SQL before it (rule 12).",
			tests:   pg("^TestHiddenCommit_Rule12$|^TestTxState_Rule12$|^TestCheckTx_Rule12$"),
		},
		{
			name: "pg-failure-hides-a-commit", file: "dedup/pgstore/tx_ended.go",
			old: "\t\treturn true, nil\n\tcase \"aborted\":\n", with: "\t\treturn false, nil\n\tcase \"aborted\":\n",
			promise: "A failure in a second transaction does not hide the COMMIT of the first one (rule 12).",
			tests:   pg("^TestHiddenCommit_Rule12$"),
		},
		{
			name: "pg-late-commit-is-a-rollback", file: "dedup/pgstore/tx_ended.go",
			old: "\tcase \"aborted\":\n", with: "\tcase \"aborted\", \"in progress\":\n",
			promise: "A COMMIT that arrives after the loss of its connection keeps no claim of an event that did not run (rule 12).",
			tests:   pg("^TestLateCommit_Rule12$|^TestIsCommitted_Rule12$"),
		},
		{
			name: "pg-one-question-to-a-late-commit", file: "dedup/pgstore/tx_ended.go",
			old: "if err == nil || refused(err) || pause(wait, try) != nil {", with: "if wait != nil && try > 0 {",
			promise: "The store asks again while a COMMIT is on its way (rule 12).",
			tests:   pg("^TestLateCommit_Rule12$|^TestHiddenCommitBehindARestart_Rule12$"),
		},
		{
			name: "pg-abandoned-commit-is-a-rollback", file: "dedup/pgstore/tx_handle.go",
			old: "return r.takeBackLate(err)\n\t}\n\treturn r.unwritten", with: "return r.takeBack(err)\n\t}\n\treturn r.unwritten",
			promise: "A COMMIT under way at the end of an abandoned handler keeps no claim of an event that did not run (rule 12).",
			tests:   pg("^TestAbandonedCommit_Rule12$"),
		},
		{
			name: "pg-refused-rollback-hides-a-late-commit", file: "dedup/pgstore/tx_handle.go",
			old: "if r.conn.Conn().IsClosed() {", with: "if r.conn.Conn() == nil {",
			promise: "A call of Rollback behind a lost connection does not hide a COMMIT that is on its way (rule 12).",
			tests:   pg("^TestLateCommitAndRollback_Rule12$"),
		},
		{
			name: "pg-restart-hides-claims", file: "dedup/pgstore/tx_ended.go",
			old: "\tfailed := untilAnswered(ctx, func(ctx context.Context) error {", with: "\tfailed := within(ctx, endTimeout, func(ctx context.Context) error {",
			promise: "Claims behind a COMMIT as SQL are taken back after a restart of the server (rule 12).",
			tests:   pg("^TestHiddenCommitBehindARestart_Rule12$"),
		},
		{
			name: "pg-statement-under-way-is-an-outage", file: "dedup/pgstore/tx_ended.go",
			old: "\tcase errors.Is(failed, errUndecided):\n", with: "\tcase failed == nil && err == nil:\n",
			promise: "A server that still executes a statement of an abandoned handler is available (rule 20).",
			tests:   pg("^TestAbandonedStatement_Rule12$"),
		},
		{
			name: "pg-silent-connection-takes-all-time", file: "dedup/pgstore/tx_ended.go",
			old: "context.WithTimeout(ctx, min(askTime, r.db.silence))", with: "context.WithTimeout(ctx, endTimeout)",
			promise: "A silent connection leaves time to ask about a COMMIT with another one (rule 12).",
			tests:   pg("^TestHiddenCommitBehindASilentConnection_Rule12$"),
		},
		{
			name: "pg-no-look-after-a-loss", file: "dedup/pgstore/tx_ended.go",
			old: "\tif !r.group() {\n\t\treturn false, nil", with: "\tif len(r.reqs) > 0 {\n\t\treturn false, nil",
			promise: "After a lost connection, another one looks for a COMMIT in its last message (rule 12).",
			tests:   pg("^TestHiddenCommit_Rule12$/one_message"),
		},
		{
			name: "pg-failed-event-hides-a-commit", file: "dedup/pgstore/tx_ended.go",
			old: "\tcase !found:\n\t\treturn explained\n", with: "\tcase !found || !r.group():\n\t\treturn explained\n",
			promise: "The error of an event that committed by SQL tells of the COMMIT (P-13).",
			tests:   pg("^TestFailureBehindACommit_P13$"),
		},
		{
			name: "pg-repeat-after-a-commit", file: "dedup/pgstore/tx_ended.go",
			old: "\tr.again = false //", with: "\t//",
			promise: "A conflict after a COMMIT as SQL is not taken for a duplicate (P-13).",
			tests:   pg("^TestFailureBehindACommit_P13$/conflict"),
		},
		{
			name: "pg-kept-work-hides-a-commit", file: "dedup/pgstore/flush.go",
			old: "\treturn r.undone(err, r.flushFailed(ctx, err))\n", with: "\treturn r.flushFailed(ctx, err)\n",
			promise: "Kept work that fails behind a COMMIT as SQL is not lost without an error (P-13).",
			tests:   pg("^TestKeptWorkFailsBehindACommit_P13$"),
		},
		{
			name: "pg-completion-hides-a-commit", file: "dedup/pgstore/tx_commit.go",
			old: "return r.undone(err, r.db.failed(ctx, \"complete\", err))", with: "return r.db.failed(ctx, \"complete\", err)",
			promise: "A completion that fails behind a COMMIT as SQL tells of the COMMIT (P-13).",
			tests:   pg("^TestCompletionFailsBehindACommit_P13$"),
		},
		{
			name: "pg-handler-commits", file: "dedup/pgstore/handlertx.go",
			old: "func (t *handlerTx) Commit(context.Context) error   { return ErrTxOwned }", with: "func (t *handlerTx) Commit(ctx context.Context) error { return t.Tx.Commit(ctx) }",
			promise: "A handler cannot end its transaction (P-13).",
			tests:   pg("^TestHandlerCannotEndTheTransaction_P13$"),
		},
	}
}
