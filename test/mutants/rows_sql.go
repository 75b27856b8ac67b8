package main

// sqlPostgresMutants are faults of sqlstore that the tests on Postgres must find: the dialect, and
// SQL that all dialects share.
func sqlPostgresMutants() []mutant {
	const file = "dedup/sqlstore/postgres/postgres.go"
	const conformance = "^TestConformance$/^pgx$/^"
	const inTx = "^TestTxConformance$/^pgx$/"
	pg := func(run string) owner { return served("dedup/sqlstore/postgres", run, "postgres") }
	return []mutant{
		{
			name: "sql-slow-commit-is-a-rollback", file: "dedup/sqlstore/tx_ended.go",
			old: "eventsTable.add(ctx, w.q, w.d, absent)", with: "eventsTable.add(ctx, w.q, w.d, absent[:0])",
			promise: "A COMMIT as SQL that goes on behind a lost connection is found (rule 12).",
			tests:   pg("^TestSlowCommitAsSQL_Rule12$"),
		},
		{
			name: "sql-locked-row-hides-a-commit", file: "dedup/sqlstore/tx_ended.go",
			old: "\t\treturn look(ctx)\n", with: "\t\t_, err := look(ctx)\n\t\treturn false, err\n",
			promise: "A lock of another worker does not hide a COMMIT as SQL (rule 12).",
			tests:   pg("^TestCommitBehindALockedRow_Rule12$"),
		},
		{
			name: "sql-restart-hides-a-commit", file: "dedup/sqlstore/tx_ended.go",
			old: "\t\tif pause(bounded, try) == nil {\n\t\t\tcontinue\n\t\t}\n", with: "",
			promise: "The store looks for a COMMIT as SQL again while the database restarts (rule 12).",
			tests:   ownedBy("dedup/sqlstore", "^TestLookForACommit_Rule12$/restart"),
		},
		{
			name: "sql-known-end-hides-a-commit", file: "internal/decision/group.go",
			old: "return failed || ended", with: "_ = ended\n\treturn failed",
			promise: "A call of Rollback behind a lost connection does not hide a COMMIT that is on its way (rule 12).",
			tests:   ownedBy("internal/decision", "^TestEndedBySQL_Rule12$"),
		},
		{
			name: "sql-one-look-for-a-commit", file: "dedup/sqlstore/tx_ended.go",
			old: "\t\tcase there:\n\t\t\treturn true, nil\n", with: "\t\tcase there && false:\n\t\t\treturn true, nil\n",
			promise: "A COMMIT as SQL that a lock has hidden is looked for again (rule 12).",
			tests:   ownedBy("dedup/sqlstore", "^TestLookForACommit_Rule12$"),
		},
		{
			name: "sql-abandoned-commit-is-a-rollback", file: "dedup/sqlstore/tx_run.go",
			old: "if r.blind || errors.Is(err, dedup.ErrAbandoned) {", with: "if r.blind {",
			promise: "A COMMIT as SQL of an abandoned handler is found when it ends (rule 12).",
			tests:   pg("^TestSlowCommitAsSQL_Rule12$/^pgx$/abandoned"),
		},
		{
			name: "sql-abandoned-commit-is-not-in-doubt", file: "dedup/sqlstore/tx_ended.go",
			old: "\tcase failed != nil:\n\t\treturn fmt.Errorf(\"%w (%w)\", decision", with: "\tcase failed != nil:\n\t\treturn err\n\tcase failed == err:\n\t\treturn fmt.Errorf(\"%w (%w)\", decision",
			promise: "The error tells that an abandoned handler's COMMIT is not ruled out (rule 12).",
			tests:   ownedBy("dedup/sqlstore", "^TestLookWithoutAnAnswer_Rule12$"),
		},
		{
			name: "sql-outage-in-a-check-refuses-the-store", file: "dedup/sqlstore/check.go",
			old: " && !slices.ContainsFunc(queries, s.mayPass)", with: " && (true || slices.ContainsFunc(queries, s.mayPass))",
			promise: "A server that goes away during a query of the dialect's check is an outage.",
			tests:   ownedBy("dedup/sqlstore", "^TestCheckOfALostServer$"),
		},
		{
			name: "sql-outage-in-rows-of-a-check-refuses-the-store", file: "dedup/sqlstore/check.go",
			old: "\t\tif err := rows.Err(); err != nil {", with: "\t\tif err := rows.Err(); err != nil && false {",
			promise: "A server that goes away behind the first row of a check is an outage.",
			tests:   ownedBy("dedup/sqlstore", "^TestCheckOfALostServer$"),
		},
		{
			name: "sql-verdict-of-a-check-is-an-outage", file: "dedup/sqlstore/check.go",
			old: "if s.isVerdict(err, asked.failures()) {", with: "if s.isVerdict(err, asked.failures()) && false {",
			promise: "A consumer does not start with a database that its dialect calls unsafe.",
			tests:   ownedBy("dedup/sqlstore", "^TestCheckOfALostServer$"),
		},
		{
			name: "sqlpg-rows-are-not-locked", file: file,
			old: "Lock:      \" FOR UPDATE\",", with: "Lock:      \"\",",
			promise: "A claim reads its rows under a lock (P-01).",
			tests:   pg("^TestClaimReadsUnderALock_P01$"),
		},
		{
			name: "sqlpg-insert-overwrites", file: file,
			old: "\" ON CONFLICT DO NOTHING\",", with: "\" ON CONFLICT (tenant, scope, event_type, event_id) DO UPDATE SET fence = excluded.fence\",",
			promise: "A record is not inserted again (P-01).",
			tests:   pg("^TestClaimOfAnEventThatBegins_P01$"),
		},
		{
			name: "sqlpg-fence-stands", file: file,
			old: "\t\tsets[i] = c + \" = excluded.\" + c\n", with: "\t\tsets[i] = c + \" = excluded.\" + c\n\t\tif c == \"fence\" {\n\t\t\tsets[i] = \"fence = excluded.fence - 1\"\n\t\t}\n",
			promise: "The fence rises with each claim.",
			tests:   pg(conformance + "lease"),
		},
		{
			name: "sqlpg-lease-is-not-written", file: file,
			old: "\t\tsets[i] = c + \" = excluded.\" + c\n", with: "\t\tsets[i] = c + \" = excluded.\" + c\n\t\tif c == \"lease_until\" {\n\t\t\tsets[i] = \"expires_at = excluded.expires_at\"\n\t\t}\n",
			promise: "A renewed claim has its lease in the table.",
			tests:   pg(conformance + "(lease|renew)"),
		},
		{
			name: "sqlpg-token-of-the-last-claim", file: file,
			old: "\t\tsets[i] = c + \" = excluded.\" + c\n", with: "\t\tsets[i] = c + \" = excluded.\" + c\n\t\tif c == \"token\" {\n\t\t\tsets[i] = \"record_version = excluded.record_version\"\n\t\t}\n",
			promise: "Only the token of the claim completes it (R-07).",
			tests:   pg(conformance + "(lease|complete)"),
		},
		{
			name: "sqlpg-clock-to-the-minute", file: file,
			old: "\"(extract(epoch FROM clock_timestamp()) * 1000000)::bigint\",", with: "\"(extract(epoch FROM date_trunc('minute', clock_timestamp())) * 1000000)::bigint\",",
			promise: "A claim ends with its lease by the server's clock.",
			tests:   pg(conformance + "lease"),
		},
		{
			name: "sqlpg-waits-for-a-lock", file: file,
			old: "set_config('lock_timeout', $1::text, true),\n\t\tset_config('statement_timeout', $2::text, true),\n\t\tCASE", with: "set_config('lock_timeout', '0' || left($1::text, 0), true),\n\t\tset_config('statement_timeout', '0' || left($2::text, 0), true),\n\t\tCASE",
			promise: "A claim waits for another transaction for a bounded time (rule 1, rule 10).",
			tests:   pg(inTx),
		},
		{
			name: "sqlpg-locked-is-a-failure", file: file,
			old: "\tcase \"55P03\":\n\t\treturn sqlstore.Locked", with: "\tcase \"55P03\":\n\t\treturn sqlstore.Refused",
			promise: "An event that another transaction holds is Busy.",
			tests:   pg(inTx),
		},
		{
			name: "sqlpg-stopped-is-final", file: file,
			old: "\tcase \"57014\":\n\t\treturn sqlstore.Stopped\n", with: "",
			promise: "A statement of the store that the server stops is an outage.",
			tests:   pg("^TestStoppedStatement$"),
		},
		{
			name: "sqlpg-mark-outlives-the-transaction", file: file,
			old: "SELECT set_config('idem.run', $1::text, true)", with: "SELECT set_config('idem.run', $1::text, false)",
			promise: "A handler that commits by SQL is not recorded as done (P-13).",
			tests:   pg(inTx),
		},
		{
			name: "sqlpg-aborted-is-an-outage", file: file,
			old: "\tcase \"25P02\":\n\t\treturn sqlstore.Aborted", with: "\tcase \"25P02\":\n\t\treturn sqlstore.Down",
			promise: "A swallowed error of a statement is a failure of the event (P-12).",
			tests:   pg(inTx),
		},
		{
			name: "sqlpg-commit-is-cancelled", file: file,
			old: "CommitStays: true,", with: "CommitStays: false,",
			promise: "A COMMIT that waits for a standby is not cancelled (P-18).",
			tests:   pg("^TestSlowCommits_P18$/^claim"),
		},
		{
			name: "sqlpg-reaper-ahead-of-the-horizon", file: "dedup/sqlstore/reap_rows.go",
			old: "\t\t\" AND created_at <= \" + p.add(w.d.Time(a.Horizon)) +\n\t\t\" AND (origin_time IS NULL OR origin_time < \" + p.add(w.d.Time(a.Horizon)) + \")\" +\n", with: "",
			promise: "No row is deleted that the horizon does not cover (rule 8).",
			tests:   pg("^TestReaper$/^pgx$"),
		},
		{
			name: "sqlpg-reaper-beyond-the-cutoff", file: "dedup/sqlstore/reap_rows.go",
			old: "\" AND expires_at < \" + p.add(w.d.Time(to)) +", with: "\" AND expires_at < \" + p.add(w.d.Time(w.now)) +",
			promise: "No row is deleted that expired after the cut-off (rule 8).",
			tests:   pg("^TestReaper$/^pgx$"),
		},
		{
			name: "sqlpg-two-reapers", file: "dedup/sqlstore/reap_lease.go",
			old: "if there && holder != mine && !micros(until).Before(w.now) {", with: "if there && holder != mine && false {",
			promise: "One reaper works at a time, also one of pgstore.",
			tests:   pg("^TestReaper$/^pgx$|^TestReapsBesidePgstore$"),
		},
	}
}

// mariaMutants are faults of the dialect of MariaDB and MySQL.
func mariaMutants() []mutant {
	const file = "dedup/sqlstore/mysql/mysql.go"
	const conformance = "^TestConformance$/^"
	maria := func(run string) owner { return served("dedup/sqlstore/mysql", run, "mariadb") }
	return []mutant{
		{
			name: "maria-rows-are-not-locked", file: file,
			old: "Lock:  \" FOR UPDATE\",", with: "Lock:  \"\",",
			promise: "A claim reads its rows under a lock (P-01).",
			tests:   maria("^TestClaimReadsUnderALock_P01$"),
		},
		{
			name: "maria-fence-stands", file: file,
			old: "\t\t\t\tsets[i] = c + \" = VALUES(\" + c + \")\"\n", with: "\t\t\t\tsets[i] = c + \" = VALUES(\" + c + \")\"\n\t\t\t\tif c == \"fence\" {\n\t\t\t\t\tsets[i] = \"fence = fence\"\n\t\t\t\t}\n",
			promise: "The fence rises with each claim.",
			tests:   maria(conformance + "lease"),
		},
		{
			name: "maria-lease-is-not-written", file: file,
			old: "\t\t\t\tsets[i] = c + \" = VALUES(\" + c + \")\"\n", with: "\t\t\t\tsets[i] = c + \" = VALUES(\" + c + \")\"\n\t\t\t\tif c == \"lease_until\" {\n\t\t\t\t\tsets[i] = \"fence = VALUES(fence)\"\n\t\t\t\t}\n",
			promise: "A renewed claim has its lease in the table.",
			tests:   maria(conformance + "(lease|renew)"),
		},
		{
			name: "maria-token-of-the-last-claim", file: file,
			old: "\t\t\t\tsets[i] = c + \" = VALUES(\" + c + \")\"\n", with: "\t\t\t\tsets[i] = c + \" = VALUES(\" + c + \")\"\n\t\t\t\tif c == \"token\" {\n\t\t\t\t\tsets[i] = \"fence = VALUES(fence)\"\n\t\t\t\t}\n",
			promise: "Only the token of the claim completes it (R-07).",
			tests:   maria(conformance + "(lease|complete)"),
		},
		{
			name: "maria-clock-to-the-minute", file: file,
			old: "\"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))\",", with: "\"60000000 * TIMESTAMPDIFF(MINUTE, '1970-01-01', UTC_TIMESTAMP(6))\",",
			promise: "A claim ends with its lease by the server's clock.",
			tests:   maria(conformance + "lease"),
		},
		{
			name: "maria-scans-a-small-table", file: file,
			old: "ByKey: \" FORCE INDEX (PRIMARY)\",", with: "ByKey: \"\",",
			promise: "Groups with different keys do not wait for each other (rule 1).",
			tests:   maria("^TestGroupsOfOtherKeysDoNotWait$"),
		},
		{
			name: "maria-taken-is-a-failure", file: file,
			old: "\tcase 1062:\n\t\treturn sqlstore.Taken", with: "\tcase 1062:\n\t\treturn sqlstore.Refused",
			promise: "A claim that lost the race for a new key asks again.",
			tests:   maria(conformance + "claim:_(100|many)"),
		},
		{
			name: "maria-lock-table-full-goes-on", file: file,
			old: " || e.Number == tooManyLocks)", with: ")",
			promise: "Effects after a rollback of the server are not committed alone (rule 12).",
			tests:   maria("^TestRollbackThatIsIgnoredLeavesNothing$"),
		},
		{
			name: "maria-time-outs-may-roll-back", file: file,
			old: "if rollsBack != 0 {", with: "if false {",
			promise: "A server that rolls back after a lock time-out is refused.",
			tests:   ownedBy("dedup/sqlstore/mysql", "^TestJudge$"),
		},
		{
			name: "maria-full-disk-is-the-event", file: file,
			old: "\t\t1114,         // the disk is full\n", with: "",
			promise: "A state of the server is an outage, not a failure of the event.",
			tests:   maria("^TestStatesOfTheServer$"),
		},
		{
			name: "maria-cancelled-call-keeps-its-settings", file: "dedup/sqlstore/tx_own.go",
			old: "if e := restore(end); err == nil {", with: "_ = end\n\t\tif e := restore(ctx); err == nil {",
			promise: "A session goes back to the pool with the settings that it had before.",
			tests:   maria("^TestCancelledCallRestoresTheSession$"),
		},
		{
			name: "maria-commit-waits-for-ever", file: "dedup/sqlstore/lend.go",
			old: "c.ExecContext(t.l.base, text, nil)", with: "c.ExecContext(context.Background(), text, nil)",
			promise: "COMMIT and ROLLBACK of a handler's transaction have ten seconds (P-16).",
			tests:   ownedBy("dedup/sqlstore", "^TestLentTransactionEndsWithoutAnAnswer_P16$"),
		},
		{
			name: "maria-rows-wait-for-ever", file: "dedup/sqlstore/lend_rows.go",
			old: "if !r.l.d.EndBySQL || ", with: "if r.l.d.EndBySQL || ",
			promise: "The rest of a result is read within the context of its query (P-16).",
			tests:   ownedBy("dedup/sqlstore", "^Test(Row|AbandonedRun)EndsWithoutAnAnswer_P16$"),
		},
		{
			name: "maria-own-commit-waits-for-ever", file: "dedup/sqlstore/tx_conn.go",
			old: "conn.ExecContext(ctx, \"COMMIT\")", with: "conn.ExecContext(context.WithoutCancel(ctx), \"COMMIT\")",
			promise: "A COMMIT of the store's own ends with its call (P-16).",
			tests:   ownedBy("dedup/sqlstore", "^TestOwnTransactionEndsWithoutAnAnswer_P16$"),
		},
		{
			name: "maria-unended-session-is-reused", file: "dedup/sqlstore/tx_conn.go",
			old: "if !ended { // inside a transaction, maybe", with: "if !ended && false {",
			promise: "A session whose transaction has not ended is closed (P-16).",
			tests:   ownedBy("dedup/sqlstore", "^TestOwnTransactionEndsWithoutAnAnswer_P16$"),
		},
		{
			name: "maria-locked-is-a-failure", file: file,
			old: "\tcase 1205, 3572: // lock wait time-out, NOWAIT\n\t\treturn sqlstore.Locked", with: "\tcase 1205, 3572: // lock wait time-out, NOWAIT\n\t\treturn sqlstore.Refused",
			promise: "An event that another transaction holds is Busy.",
			tests:   maria("^TestTxConformance$"),
		},
		{
			name: "maria-mark-is-not-checked", file: file,
			old: "\"RELEASE SAVEPOINT idem_run\"", with: "\"DO 1\"",
			promise: "A handler that commits by SQL is not recorded as done (P-13).",
			tests:   maria("^TestTxConformance$"),
		},
		{
			name: "maria-waits-for-a-lock", file: file,
			old: "if err := set(ctx, int64(wait/time.Second)); err != nil {", with: "if err := set(ctx, old); err != nil {",
			promise: "A claim waits for another transaction for a bounded time (rule 1, rule 10).",
			tests:   maria("^TestTxConformance$"),
		},
		{
			name: "maria-session-keeps-the-settings", file: file,
			old: "return func(ctx context.Context) error { return set(ctx, old) }, nil", with: "return nil, nil",
			promise: "The sessions of the application keep their settings.",
			tests:   maria("^TestSessionKeepsItsSettings$"),
		},
		{
			name: "maria-statements-after-a-deadlock", file: file,
			old: "Classify: classify, Ends: ends,", with: "Classify: classify,",
			promise: "After a deadlock no statement commits alone.",
			tests:   maria("^TestDeadlockThatIsIgnoredLeavesNothing$"),
		},
		{
			name: "maria-repeat-after-a-commit", file: "dedup/sqlstore/tx_run.go",
			old: "if state == Ended {", with: "if state == Ended && class != Again {",
			promise: "A deadlock after a COMMIT as SQL is not taken for a duplicate (P-13).",
			tests:   maria("^TestFailureBehindACommit_P13$"),
		},
		{
			name: "maria-lost-connection-hides-a-commit", file: "dedup/sqlstore/tx_run.go",
			old: "if r.blind || errors.Is(err, dedup.ErrAbandoned) {", with: "if errors.Is(err, dedup.ErrAbandoned) {",
			promise: "The end of a connection does not hide a COMMIT as SQL before it (rule 12).",
			tests:   maria("^TestLostConnectionBehindACommit_Rule12$"),
		},
		{
			name: "maria-method-hides-a-lost-connection", file: "dedup/sqlstore/tx_run.go",
			old: "r.blind = broken != nil && state != Aborted", with: "r.blind = broken != nil && state != Aborted && !r.l.ended.Load()",
			promise: "After a lost connection and a call of Rollback, another connection looks for a COMMIT (rule 12).",
			tests:   ownedBy("dedup/sqlstore", "^TestLostConnectionOfAHandler_Rule12$"),
		},
		{
			name: "maria-method-hides-an-outage", file: "dedup/sqlstore/tx_run.go",
			old: "unknown := broken != nil && state == Unknown", with: "unknown := broken != nil && state == Unknown && !r.l.ended.Load()",
			promise: "A lost connection is an outage, also after a call of Rollback.",
			tests:   ownedBy("dedup/sqlstore", "^TestLostConnectionOfAHandler_Rule12$"),
		},
		{
			name: "maria-lost-rollback-is-one", file: "dedup/sqlstore/tx_ended.go",
			old: "case lost == nil, class == Refused:", with: "case true:",
			promise: "A transaction without an answer to ROLLBACK has an unknown end.",
			tests:   ownedBy("dedup/sqlstore", "^TestLostConnectionOfAHandler_Rule12$"),
		},
		{
			name: "maria-method-hides-open-rows", file: "dedup/sqlstore/tx_ended.go",
			old: "case class == Unknown && r.l.overlap.Load():", with: "case false:",
			promise: "A handler that breaks the connection by open rows, and calls Rollback, is no outage.",
			tests:   ownedBy("dedup/sqlstore", "^TestLostConnectionOfAHandler_Rule12$"),
		},
		{
			name: "maria-known-rollback-is-an-outage", file: "dedup/sqlstore/tx_ended.go",
			old: "return Aborted, err", with: "return state, err",
			promise: "A call of Rollback by a handler is no outage of the store.",
			tests:   ownedBy("dedup/sqlstore", "^TestLostConnectionOfAHandler_Rule12$"),
		},
		{
			name: "maria-open-rows-are-an-outage", file: "dedup/sqlstore/lend_rows.go",
			old: "\tl.open.Add(1)\n", with: "",
			promise: "A handler that leaves rows open does not stop the consumption.",
			tests:   maria("^TestOpenRowsAreAnError$"),
		},
		{
			name: "maria-closed-rows-count-as-open", file: "dedup/sqlstore/lend_rows.go",
			old: "defer r.l.open.Add(-1)", with: "defer r.l.open.Add(0)",
			promise: "A lost connection is an outage, not the handler's fault.",
			tests:   ownedBy("dedup/sqlstore", "^TestRowsAreCounted$"),
		},
		{
			name: "maria-deadlock-among-rows", file: "dedup/sqlstore/lend_rows.go",
			old: "r.note(r.Rows.Next(dest))", with: "r.Rows.Next(dest)",
			promise: "After a deadlock while rows are read, no statement commits alone.",
			tests:   ownedBy("dedup/sqlstore", "^TestRowsThatEndTheTransaction_Rule12$"),
		},
		{
			name: "maria-reaper-ahead-of-the-horizon", file: "dedup/sqlstore/reap_rows.go",
			old: "\t\t\" AND created_at <= \" + p.add(w.d.Time(a.Horizon)) +\n\t\t\" AND (origin_time IS NULL OR origin_time < \" + p.add(w.d.Time(a.Horizon)) + \")\" +\n", with: "",
			promise: "No row is deleted that the horizon does not cover (rule 8).",
			tests:   maria("^TestReaper$"),
		},
		{
			name: "maria-reaper-scans-the-table", file: file,
			old: " JoinedDelete: true,", with: "",
			promise: "The reaper waits for no transaction that holds a live row.",
			tests:   maria("^TestReaper$/locked_live_rows"),
		},
		{
			name: "maria-reaper-waits-for-locks", file: file,
			old: "LockFree: \" FOR UPDATE SKIP LOCKED\",", with: "LockFree: \" FOR UPDATE\",",
			promise: "The reaper waits for no transaction.",
			tests:   maria("^TestReaper$"),
		},
	}
}
