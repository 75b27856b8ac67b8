package main

// served names the tests of a package that need services.
func served(pkg, run string, needs ...string) owner {
	return owner{pkg: pkg, run: run, needs: needs}
}

// postgresMutants are faults of pgstore: statements and Go.
func postgresMutants() []mutant {
	const sql = "dedup/pgstore/sql/"
	const claims = "^TestConformance$/^prepared$/^"
	pg := func(run string) owner { return served("dedup/pgstore", run, "postgres") }
	return []mutant{
		{
			name: "pg-take-back-of-others", file: sql + "take_back.sql",
			old: "WHERE k.xmin = $1::text::xid8::xid AND", with: "WHERE $1::text <> '' AND",
			promise: "Only claims of the ended transaction are taken back (rule 12).",
			tests:   pg("^TestTakingBackLeavesOthersAlone_Rule12$"),
		},
		{
			name: "pg-complete-any-token", file: sql + "complete.sql",
			old: "WHERE ({k.key}) = ({h.key}) AND k.token = h.token\n", with: "WHERE ({k.key}) = ({h.key})\n",
			promise: "Only the token of the claim completes it (R-07).",
			tests:   pg(claims + "complete"),
		},
		{
			name: "pg-complete-released", file: sql + "complete.sql",
			old: "k.status = 'released' AND k.uncertain AND h.status = 'done'", with: "k.status = 'released' AND h.status = 'done'",
			promise: "A late success counts only after a release as Unknown (rule 13).",
			tests:   pg(claims + "complete"),
		},
		{
			name: "pg-complete-unsorted", file: sql + "complete.sql",
			old: "      ORDER BY {order}) h", with: "      ) h",
			promise: "Completions lock rows in the order of their keys (P-04).",
			tests:   pg("^TestCompletionsAreSorted_P04$"),
		},
		{
			name: "pg-renew-any-token", file: sql + "renew.sql",
			old: "WHERE k.token = r.token AND k.status = 'claimed'", with: "WHERE k.status = 'claimed'",
			promise: "A stale worker renews no claim of another worker (R-05).",
			tests:   pg(claims + "renew"),
		},
		{
			name: "pg-release-any-token", file: sql + "release.sql",
			old: "WHERE k.token = r.token AND k.status IN ('claimed', 'released')", with: "WHERE k.status IN ('claimed', 'released')",
			promise: "A stale worker releases no claim of another worker (R-06).",
			tests:   pg(claims + "release"),
		},
		{
			name: "pg-release-forgets-doubt", file: sql + "release.sql",
			old: "uncertain = k.uncertain OR h.uncertain,", with: "uncertain = h.uncertain,",
			promise: "A doubt stays until the event is done.",
			tests:   pg(claims + "release"),
		},
		{
			name: "pg-lease-is-shorter", file: sql + "existing_keys.sql",
			old: "lease_until = clock_timestamp() + $12::bigint *", with: "lease_until = clock_timestamp() + $12::bigint / 2 *",
			promise: "A lease has its full length for both sides.",
			tests:   pg(claims + "lease"),
		},
		{
			name: "pg-new-lease-is-shorter", file: sql + "insert_keys.sql",
			old: "       clock_timestamp() + $15::bigint *", with: "       clock_timestamp() + $15::bigint / 2 *",
			promise: "A lease has its full length for both sides.",
			tests:   pg(claims + "(claim|lease)"),
		},
		{
			name: "pg-lease-by-transaction-time", file: sql + "existing_keys.sql",
			old: "lease_until = clock_timestamp() + $12", with: "lease_until = now() + $12",
			promise: "A lease begins when it is granted.",
			tests:   pg("^TestLeaseBeginsAfterTheWait_Rule24$"),
		},
		{
			name: "pg-busy-too-long", file: sql + "answer_keys.sql",
			old: "k.lease_until > clock_timestamp() THEN 'busy'", with: "k.lease_until > clock_timestamp() - interval '1 minute' THEN 'busy'",
			promise: "A claim ends with its lease by the server's clock.",
			tests:   pg(claims + "lease"),
		},
		{
			name: "pg-busy-is-granted", file: sql + "answer_keys.sql",
			old: "               WHEN k.status = 'claimed' AND k.lease_until > clock_timestamp() THEN 'busy'\n", with: "",
			promise: "A claim with a live lease is Busy for others.",
			tests:   pg(claims + "claim"),
		},
		{
			name: "pg-conflict-compares-two-kinds", file: sql + "answer_keys.sql",
			old: "\n                    AND octet_length(k.fingerprint) = octet_length(r.fingerprint) THEN", with: " THEN",
			promise: "A checksum and a keyed hash are not compared.",
			tests:   pg(claims + "claim"),
		},
		{
			name: "pg-later-release-is-read", file: sql + "answer_keys.sql",
			old: "CASE WHEN k.record_version <> 1 THEN 'unknown'", with: "CASE WHEN k.record_version < 1 THEN 'unknown'",
			promise: "A record of a later release is no answer (rule 35).",
			tests:   pg("^TestUnknownRecordIsNoAnswer_Rule35$|^TestCompactRecordsOfLaterReleases_Rule35$"),
		},
		{
			name: "pg-grant-of-a-changed-row", file: sql + "existing_keys.sql",
			old: "WHERE s.answer = 'grant' AND k.xmin = s.version\n       OR", with: "WHERE s.answer = 'grant'\n       OR",
			promise: "A row that changed after the answer is not granted.",
			tests:   pg("^TestClaimOfAChangedRow_R09$"),
		},
		{
			name: "pg-fence-stands", file: sql + "existing_keys.sql",
			old: "fence = k.fence + (l.answer = 'grant')::int,", with: "fence = k.fence,",
			promise: "The fence rises with each claim.",
			tests:   pg(claims + "(lease|release)"),
		},
		{
			name: "pg-takeover-without-doubt", file: sql + "existing_keys.sql",
			old: "uncertain = k.uncertain OR (l.answer = 'grant' AND k.status = 'claimed'),", with: "uncertain = k.uncertain,",
			promise: "A claim that ended by its lease makes the next one Uncertain.",
			tests:   pg(claims + "lease"),
		},
		{
			name: "pg-takeover-not-counted", file: sql + "existing_keys.sql",
			old: "takeovers = k.takeovers + (l.answer = 'grant' AND k.status = 'claimed')::int,", with: "takeovers = k.takeovers,",
			promise: "The take-overs of a crash loop are counted (rule 18).",
			tests:   pg(claims + "lease"),
		},
		{
			name: "pg-insert-overwrites", file: sql + "insert_events.sql",
			old: "ON CONFLICT (tenant, scope, event_type, event_id) DO NOTHING", with: "ON CONFLICT (tenant, scope, event_type, event_id) DO UPDATE SET updated_at = clock_timestamp()",
			promise: "An event that is on record is not inserted again (P-01).",
			tests:   pg("^TestOnce$|^TestOnceRace_P01$"),
		},
		{
			name: "pg-insert-unsorted", file: sql + "insert_keys.sql",
			old: "ORDER BY {tenant} COLLATE \"C\", {scope} COLLATE \"C\", {event_type} COLLATE \"C\", r.event_id COLLATE \"C\"\n", with: "",
			promise: "Claims lock rows in the order of their keys (P-04).",
			tests:   pg("^TestOverlappingBatchesDoNotDeadlock_P04$|^TestInserts"),
			harmless: "dedup.CheckRequests refuses requests that do not ascend, and unnest keeps their order. The clause " +
				"keeps the order if another plan is chosen.",
		},
		{
			name: "pg-too-old-later-copy", file: sql + "too_old.sql",
			old: "AND {generation} = 0 AND {retry} = 0", with: "AND {generation} = 0",
			promise: "A copy for a later attempt is never too old (rule 8).",
			tests:   pg("^TestTxConformance$/^prepared$/horizon"),
		},
		{
			name: "pg-too-old-is-never-answered", file: sql + "existing_events.sql",
			old: "WHERE r.old AND NOT EXISTS (", with: "WHERE false AND r.old AND NOT EXISTS (",
			promise: "An event that the store may have forgotten is TooOld, never Fresh (rule 8).",
			tests:   pg("^TestTxConformance$/^prepared$/horizon"),
		},
		{
			name: "pg-reaper-ahead-of-the-horizon", file: sql + "reaper_delete.sql",
			old: "          AND e.created_at <= $5::timestamptz AND (e.origin_time IS NULL OR e.origin_time < $5::timestamptz)\n", with: "",
			promise: "No row is deleted that the horizon does not cover (rule 8).",
			tests:   pg("^TestHorizon_Rewind_Rule8$"),
		},
		{
			name: "pg-reaper-deletes-dead-letters", file: sql + "reaper_delete.sql",
			old: "e.status = 'dead' OR e.generation > 0", with: "e.generation > 0",
			promise: "The record of a dead letter lives as long as the dead letter.",
			tests:   pg("^TestReaper_Dead_Rule8$"),
		},
		{
			name: "pg-horizon-stops-at-rows-that-stay", file: "internal/reaping/scope.go",
			old: "if rows[table].Limit.IsZero() || a.Cutoff.IsZero() {", with: "if true {",
			promise: "Expired rows with times ahead do not stop the deletion of all others (rule 8).",
			tests:   pg("^TestHorizon_PassesRowsThatStay_Rule8$"),
		},
		{
			name: "pg-horizon-stops-at-one-expiry", file: "internal/decision/horizon.go",
			old: "sum.Limit = later(rest.Limit, from.Add(time.Microsecond))", with: "sum.Limit = rest.Limit",
			promise: "Many rows with one expiry do not stop the deletion of all others (rule 8).",
			tests:   pg("^TestHorizon_PassesRowsThatStay_Rule8$"),
		},
		{
			name: "pg-reaper-reads-all-rows", file: "internal/decision/horizon.go",
			old: "\tif n < limit {\n", with: "\tif n <= limit {\n",
			promise: "Rows that stay do not take a statement of the reaper beyond its time limit (rule 8).",
			tests:   pg("^TestReaperReadsBoundedRows_Rule8$"),
		},
		{
			name: "pg-reaper-stops-at-rows-that-stay", file: "internal/decision/horizon.go",
			old: "return end, true", with: "return end, false",
			promise: "Rows that stay do not stop the deletion of rows behind them (rule 8).",
			tests:   pg("^TestReaper_PassesWindowsOfRowsThatStay_Rule8$"),
		},
		{
			name: "pg-maintenance-waits-for-a-silent-server", file: "dedup/pgstore/database.go",
			old: "\t\tctx, cancel := context.WithTimeout(ctx, limit+d.silence)\n", with: "\t\tctx, cancel := context.WithCancel(ctx)\n",
			promise: "Maintenance ends when the server falls silent (rule 20).",
			tests:   pg("^TestFrozenServerEndsMaintenance_Rule20$"),
		},
		{
			name: "reapers-of-all-scopes-share-a-lease", file: "internal/decision/reaper.go",
			old: "\tif len(wallClock) == 0 {\n", with: "\tif len(wallClock) >= 0 {\n",
			promise: "A reaper does not keep one with other scopes from its work.",
			tests:   pg("^TestReaper_OtherScopesBeside$"),
		},
		{
			name: "reaper-stops-at-a-slow-scope", file: "internal/reaping/run.go",
			old: "\t\tcase ctx.Err() == nil && l.store.TooSlow(err) && len(slow) < maxSlow:\n", with: "\t\tcase false:\n",
			promise: "A scope whose deletion does not end in time holds up no other scope.",
			tests:   ownedBy("internal/reaping", "^TestSlowScopes$"),
		},
		{
			name: "reaper-goes-on-without-its-lease", file: "internal/reaping/run.go",
			old: "\treturn l.renewLease(ctx)\n", with: "\t_ = l.renewLease(ctx)\n\treturn ctx.Err()\n",
			promise: "A reaper deletes no further batch after another one has taken its lease (rule 58).",
			tests:   ownedBy("internal/reaping", "^TestElsewhereInTheMiddle$"),
		},
		{
			name: "reaper-deletes-without-the-grace", file: "internal/reaping/scope.go",
			old: "if a.ConsumedUntil.IsZero() || !a.Ripe {", with: "if a.ConsumedUntil.IsZero() {",
			promise: "Rows are deleted when every claim knows the horizon (rule 8).",
			tests:   ownedBy("internal/reaping", "^TestWork$"),
		},
		{
			name: "reaper-deletes-beyond-its-window", file: "internal/reaping/scope.go",
			old: "s.Rows.Delete(ctx, table, a, from, to)", with: "s.Rows.Delete(ctx, table, a, from, a.ConsumedUntil)",
			promise: "No row is deleted that expired after the cut-off (rule 8).",
			tests:   ownedBy("internal/reaping", "^TestWork$"),
		},
		{
			name: "reaper-moves-the-horizon-after-an-error", file: "internal/reaping/scope.go",
			old: "\tif err == nil {\n\t\terr = s.move(ctx, a)\n", with: "\tif true {\n\t\terr = s.move(ctx, a)\n",
			promise: "The horizon does not move on before the rows behind it are deleted.",
			tests:   ownedBy("internal/reaping", "^TestWorkEndsWithAnError$"),
		},
		{
			name: "reaper-stops-at-locked-rows", file: "internal/reaping/scope.go",
			old: "last = from.Add(time.Microsecond)", with: "return nil",
			promise: "Locked rows of one time do not stop the deletion of the rows behind them.",
			tests:   ownedBy("internal/reaping", "^TestWork$"),
		},
		{
			name: "pg-reaper-knows-no-slow-scope", file: "dedup/pgstore/reap_rows.go",
			old: "{ return sqlState(err) == codeCanceled }", with: "{ return false }",
			promise: "A scope whose deletion does not end in time holds up no other scope.",
			tests:   pg("^TestReaper_SlowScope$"),
		},
		{
			name: "pg-two-reapers", file: sql + "reaper_lease.sql",
			old: "WHERE l.token = excluded.token OR l.lease_until < clock_timestamp()\n", with: "",
			promise: "One reaper works at a time.",
			tests:   pg("^TestReaper_AtOnce_Rule58$"),
		},
		{
			name: "pg-horizon-by-the-fastest-partition", file: sql + "horizon_scopes.sql",
			old: "ORDER BY scope, consumed_until NULLS FIRST, topic, partition", with: "ORDER BY scope, consumed_until DESC NULLS LAST, topic, partition",
			promise: "The partition furthest behind decides what is forgotten (rule 8).",
			tests:   pg("^TestReaper_Lag_Rule8$"),
		},
		{
			name: "pg-commit-is-not-durable", file: sql + "begin_tx.sql",
			old: "CASE WHEN $4::boolean THEN set_config('synchronous_commit', 'on', true) END,", with: "CASE WHEN $4::boolean THEN set_config('synchronous_commit', 'off', true) END,",
			promise: "With Durable a commit waits for the disk, whatever the session has set (P-18).",
			tests:   pg("^TestCheckWarns_P18$"),
		},
		{
			name: "pg-deferred-queue-overtaken", file: sql + "defer_due.sql",
			old: "AND NOT blocked\n", with: "\n",
			promise: "A queue behind a dead event stays until a person decides (rule 4).",
			tests:   pg("^TestDeferrerConformance_Rule4$/^prepared$/person"),
		},
		{
			name: "pg-deferred-out-of-order", file: sql + "defer_due.sql",
			old: "    ORDER BY p.seq\n    LIMIT 1\n", with: "    ORDER BY p.seq DESC\n    LIMIT 1\n",
			promise: "Deferred events of a key run in order (rule 4).",
			tests:   pg("^TestDeferrerConformance_Rule4$/^prepared$/(order|person)"),
		},
		{
			name: "pg-forget-of-a-live-claim", file: sql + "forget.sql",
			old: "status = 'claimed' AND lease_until > clock_timestamp() AS live", with: "false AS live",
			promise: "A person forgets no key with a running claim.",
			tests:   pg("^TestOperatorConformance$/^prepared$/[Ff]orget"),
		},
	}
}

// redisMutants are faults of redisstore: scripts and Go.
func redisMutants() []mutant {
	redis := func(run string) owner { return served("dedup/redisstore", run, "redis") }
	const dir = "dedup/redisstore/"
	return []mutant{
		{
			name: "redis-any-token-holds", file: dir + "record.lua",
			old: "return r.state == PENDING and r.token == token", with: "return r.state == PENDING",
			promise: "Only the token of the claim renews, releases and completes it (R-05 to R-07).",
			tests:   redis("^TestConformance$/^(renew|complete|release)"),
		},
		{
			name: "redis-renew-ignores-a-failed-key", file: dir + "end.go",
			old: "part.Failed = append(part.Failed, i)", with: "continue",
			promise: "A key that Redis did not renew is no renewed lease (R-06).",
			tests:   ownedBy("dedup/redisstore", "^TestRenew.*_R06$"),
		},
		{
			name: "redis-renew-stops-at-a-failed-key", file: dir + "script.go",
			old:     "\t\t_, err := cmd.Slice()\n\t\treturn err\n\t}\n",
			with:    "\t\t_, err := cmd.Slice()\n\t\treturn err\n\t}\n\tif cmd.Err() != nil {\n\t\treturn cmd.Err()\n\t}\n",
			promise: "A server that hangs does not end the leases on other servers (R-06).",
			tests:   ownedBy("dedup/redisstore", "^TestRenewReadsRepliesAfterTheContextEnded_R06$"),
		},
		{
			name: "redis-lease-of-persisted-record", file: dir + "record.lua",
			old: "if ttl < 0 or ttl > r.total then", with: "if ttl < -2 then",
			promise: "A foreign TTL neither ends a lease nor makes it endless.",
			tests:   redis("^TestForeignTTLDoesNotEndALease$"),
		},
		{
			name: "redis-lease-includes-the-retention", file: dir + "record.lua",
			old: "return ttl - (r.total - r.lease)", with: "return ttl",
			promise: "A claim ends with its lease, not with its record.",
			tests:   redis("^TestConformance$/^(lease|claim)"),
		},
		{
			name: "redis-takeover-without-doubt", file: dir + "claim.lua",
			old: "rec.uncertain, rec.takeovers = true, rec.takeovers + 1", with: "rec.takeovers = rec.takeovers + 1",
			promise: "A claim that ended by its lease makes the next one Uncertain.",
			tests:   redis("^TestConformance$/^lease"),
		},
		{
			name: "redis-late-claim-of-the-old", file: dir + "claim.lua",
			old: "if ARGV[3] == '2' then", with: "if ARGV[3] == '3' then",
			promise: "An event that the store may have forgotten is TooOld (rule 8).",
			tests:   redis("^TestTooOldInTheScript$"),
		},
		{
			name: "redis-birth-is-asked-for-once", file: dir + "clock.go",
			old: "if ok && time.Since(known.asked) < clockAge {", with: "if ok {",
			promise: "A running process gives an emptied store its births back (rule 8).",
			tests:   redis("^TestBirthAfterTheStoreWasEmptied_Rule8$"),
		},
		{
			name: "redis-emptied-store-is-born-anew", file: dir + "age.go",
			old: "if born == 0 {\n\t\tnow, err", with: "if true {\n\t\tnow, err",
			promise: "Events from before the emptying of a store stay TooOld (rule 8).",
			tests:   redis("^TestBirthAfterTheStoreWasEmptied_Rule8$"),
		},
		{
			name: "redis-known-birth-needs-its-server", file: dir + "age.go",
			old:     "if there, err := s.heard(bounded, scope, command); err == nil {\n\t\treturn there, nil\n\t}\n\treturn known, nil",
			with:    "return s.heard(bounded, scope, command)",
			promise: "A dead server with a known birth fails no claim of keys on other servers (R-14).",
			tests:   ownedBy("dedup/redisstore", "^TestKnownBirthNeedsNoServer_R14$"),
		},
		{
			name: "redis-known-birth-waits-for-its-server", file: dir + "age.go",
			old: "context.WithTimeout(ctx, birthWait(ctx))", with: "context.WithTimeout(ctx, 2*time.Minute)",
			promise: "A silent server with a known birth leaves time for the keys (R-14).",
			tests:   ownedBy("dedup/redisstore", "^TestKnownBirthNeedsNoServer_R14$"),
		},
		{
			name: "redis-known-birth-is-asked-for-by-all", file: dir + "clock.go",
			old: "birth{born: known.born, asked: time.Now()}", with: "known",
			promise: "One caller a minute waits for a known birth (R-14).",
			tests:   ownedBy("dedup/redisstore", "^TestOneCallerAsksForAKnownBirth_R14$"),
		},
		{
			name: "redis-look-uses-up-the-question", file: dir + "age.go",
			old: "\t\ts.births.askAgain(scope)\n", with: "",
			promise: "The next claim after a look gives an emptied store its births back (rule 8).",
			tests:   redis("^TestBirthAfterTheStoreWasEmptied_Rule8$"),
		},
		{
			name: "redis-record-without-expiry", file: dir + "record.lua",
			old: "redis.call('SET', key, value, 'PX', ttl)\n  return value", with: "redis.call('SET', key, value)\n  return value",
			promise: "Every record expires.",
			tests:   redis("^TestEveryRecordExpires$"),
		},
		{
			name: "redis-late-result-overwrites", file: dir + "complete.lua",
			old: "if state == DONE and not result and not (rec and rec.state == DONE) then", with: "if state == DONE and not (rec and rec.state == DONE) then",
			promise: "A lost claim with a result leaves the record as it is.",
			tests:   redis("^TestLateCompletion|^TestConformance$/^complete"),
		},
		{
			name: "redis-late-without-doubt", file: dir + "complete.lua",
			old: "and rec.uncertain and not rec.reopened", with: "and not rec.reopened",
			promise: "A late success counts only after a release as Unknown (rule 13).",
			tests:   redis("^TestLateCompletion|^TestConformance$/^complete"),
		},
	}
}

// sqlMutants are faults of sqlstore and its dialects.
func sqlMutants() []mutant {
	const dir = "dedup/sqlstore/"
	lite := func(run string) owner { return ownedBy("dedup/sqlstore/sqlite", run) }
	return []mutant{
		{
			name: "sql-refused-claim-is-written", file: dir + "claim.go",
			old: "\t\tif !answers[i].Verdict.Held() {\n\t\t\tcontinue\n\t\t}\n", with: "",
			promise: "A claim that is not granted leaves the record as it is.",
			tests:   lite("^TestTxConformance$/one_effect"),
		},
		{
			name: "sql-too-old-is-fresh", file: dir + "claim.go",
			old: "\t\t\tif decision.TooOld(q, w.horizons[q.Key.Scope]) {", with: "\t\t\tif false {",
			promise: "An event that the store may have forgotten is TooOld (rule 8).",
			tests:   lite("^TestReaper$"),
		},
		{
			name: "sql-lost-claims-are-held", file: dir + "held.go",
			old: "\t\t\tif !served {\n\t\t\t\tlost = append(lost, i)\n\t\t\t}\n", with: "\t\t\t_ = served\n",
			promise: "A verb names the claims that were lost.",
			tests:   lite("^TestConformance$/^(complete|release|renew)"),
		},
		{
			name: "sql-ended-transaction-is-fine", file: dir + "tx_run.go",
			old: "\tif err := r.left(end); err != nil {\n\t\tr.spoil = true\n\t\treturn err\n\t}\n", with: "",
			promise: "A handler that ends its transaction is not recorded as done (P-13).",
			tests:   lite("^TestHandlerThatEndsTheTransaction$"),
		},
		{
			name: "sql-completion-of-another-event", file: dir + "tx_run.go",
			old: "\t\tcase at < 0:\n", with: "\t\tcase at < 0 && i > 0:\n\t\t\tcontinue\n\t\tcase at < 0:\n",
			promise: "A transaction completes only events that it has claimed.",
			tests:   lite("^TestTxConformance$/did_not_claim"),
		},
		{
			name: "sql-take-back-of-others", file: dir + "tx_ended.go",
			old: "row.State == decision.Done && row.Fence == rec.Fence && row.Changed.Equal(rec.Changed)", with: "row.State == decision.Done && rec != nil",
			promise: "Only claims of the ended transaction are taken back (rule 12).",
			tests:   lite("^TestTakingBackLeavesOthersAlone_Rule12$"),
		},
		{
			name: "sql-failed-group-keeps-claims", file: "internal/decision/group.go",
			old: "&dedup.TxEndedError{Unrun: group.Unrun}", with: "&dedup.TxEndedError{Unrun: group.Unrun[:0]}",
			promise: "A COMMIT as SQL and a later failure keep no claim of an event that did not run (rule 12).",
			tests:   lite("^TestTxConformance$/and_then_failed"),
		},
		{
			name: "sql-failure-hides-a-commit", file: dir + "tx_ended.go",
			old: "\tcase there:\n\t\tr.spoil", with: "\tcase there && false:\n\t\tr.spoil",
			promise: "A statement that fails does not hide a COMMIT as SQL before it (rule 12).",
			tests:   lite("^TestTxConformance$/before_a_statement_failed"),
		},
		{
			name: "sql-method-hides-a-commit", file: dir + "tx_ended.go",
			old: "\tcase r.l.ended.Load():", with: "\tcase false:",
			promise: "A call of Rollback does not hide a COMMIT as SQL before it (rule 12).",
			tests:   lite("^TestHiddenCommit_Rule12$"),
		},
		{
			name: "sql-own-rows-before-the-rollback", file: dir + "tx_ended.go",
			old: "_, lost := r.db.ExecContext(ctx, \"ROLLBACK\")", with: "var lost error",
			promise: "A group that was not committed is not treated as ended (rule 12).",
			tests:   lite("^TestHiddenCommit_Rule12$"),
		},
		{
			name: "sql-horizon-by-the-fastest-partition", file: dir + "horizon.go",
			old: "if old, there := scopes[p.scope]; !there || further(p, old) {", with: "if old, there := scopes[p.scope]; !there || further(old, p) {",
			promise: "The partition furthest behind decides what is forgotten (rule 8).",
			tests:   ownedBy("dedup/sqlstore", "^TestAges$"),
		},
		{
			name: "sql-reaper-passes-rows-to-delete", file: "internal/reaping/scope.go",
			old: "passed = passed && n == 0 && err == nil", with: "passed = passed && err == nil",
			promise: "A reaper that keeps running passes no row that it may delete (rule 8).",
			tests:   ownedBy("dedup/sqlstore", "^TestReaperPassesWindowsOfRowsThatStay_Rule8$"),
		},
		{
			name: "sql-horizon-goes-back-behind-another-reaper", file: dir + "horizon.go",
			old: "a.Horizon = later(before, micros(micro))", with: "a.Horizon = before",
			promise: "The horizon of a scope never goes back (rule 8).",
			tests:   ownedBy("dedup/sqlstore", "^TestHorizonThatMovedMeanwhile_Rule8$"),
		},
		{
			name: "sql-horizon-goes-back", file: "internal/decision/horizon.go",
			old: "before = later(before, e.Made)", with: "before = e.Made",
			promise: "The horizon of a scope never goes back (rule 8).",
			tests:   ownedBy("internal/decision", "^TestNextHorizon$"),
		},
		{
			name: "sql-horizon-stops-at-rows-that-stay", file: "internal/reaping/scope.go",
			old: "if rows[table].Limit.IsZero() || a.Cutoff.IsZero() {", with: "if true {",
			promise: "Expired rows with times ahead do not stop the deletion of all others (rule 8).",
			tests:   ownedBy("dedup/sqlstore", "^TestHorizonPassesRowsThatStay_Rule8$"),
		},
		{
			name: "sql-horizon-stops-at-one-expiry", file: "internal/decision/horizon.go",
			old: "sum.Limit = later(rest.Limit, from.Add(time.Microsecond))", with: "sum.Limit = rest.Limit",
			promise: "Many rows with one expiry do not stop the deletion of all others (rule 8).",
			tests:   ownedBy("dedup/sqlstore", "^TestHorizonPassesRowsThatStay_Rule8$"),
		},
		{
			name: "sqlite-statements-after-a-rollback", file: dir + "sqlite/sqlite.go",
			old: "Lives: lives, ", with: "",
			promise: "After SQLite has rolled back, no statement of a handler commits alone (rule 12).",
			tests:   lite("^TestRollbackThatIsIgnored_Rule12$"),
		},
		{
			name: "sqlite-any-error-ends-the-transaction", file: dir + "sqlite/sqlite.go",
			old: "return errors.As(err, &e) && e.Code() == lib.SQLITE_ERROR", with: "return errors.As(err, &e) && false",
			promise: "A handler may go on after an error with which SQLite keeps the transaction.",
			tests:   lite("^TestRollbackThatIsIgnored_Rule12$"),
		},
		{
			name: "sqlite-commit-is-not-durable", file: dir + "sqlite/sqlite.go",
			old: "\"synchronous(FULL)\"", with: "\"synchronous(OFF)\"",
			promise: "A commit waits for the disk.",
			tests:   lite("^TestCommitsWaitForTheDisk$"),
		},
	}
}

// dynamoMutants are faults of dynamostore.
func dynamoMutants() []mutant {
	const dir = "dedup/dynamostore/"
	dynamo := func(run string) owner { return served("dedup/dynamostore", run, "dynamodb") }
	return []mutant{
		{
			name: "dynamo-renewal-ends-at-the-first-error", file: dir + "end.go",
			old: "s.eachUntil(len(claims), allFailed,", with: "s.eachUntil(len(claims), anyFailed,",
			promise: "A throttled key does not end the renewal of the keys after it.",
			tests:   ownedBy("dedup/dynamostore", "^TestRenewServesAllKeysOfAPartlyThrottledTable$"),
		},
		{
			name: "dynamo-any-token-holds", file: dir + "write.go",
			old: "condition := fmt.Sprintf(\"%s AND %s = %s\", state, c.name(aToken),\n\t\tc.value(\"token\", binary(t[:])))", with: "condition := fmt.Sprintf(\"%s AND attribute_exists(%s)\", state, c.name(aToken))",
			promise: "Only the token of the claim renews, releases and completes it (R-05 to R-07).",
			tests:   dynamo("^TestConformance$/^(renew|complete|release)"),
		},
		{
			name: "dynamo-changed-item-is-replaced", file: dir + "change.go",
			old: "return fmt.Sprintf(\"%s = %s AND %s = %s\", c.name(aRev), c.value(\"rev\", unsigned(r.rev)),\n\t\tc.name(aToken), c.value(\"token\", binary(r.Token[:])))", with: "return fmt.Sprintf(\"%s = %s\", c.name(aToken), c.value(\"token\", binary(r.Token[:])))",
			promise: "A claim that was renewed meanwhile is not taken over.",
			tests:   dynamo("^TestTakeoverMeetsARenewal_R18$"),
		},
		{
			name: "dynamo-expired-claim-is-replaced", file: dir + "write.go",
			old: "condition = fmt.Sprintf(\"attribute_not_exists(%s) OR (%s < %s AND %s <> %s)\", c.name(aKey),", with: "condition = fmt.Sprintf(\"attribute_not_exists(%s) OR (%s < %s OR %s <> %s)\", c.name(aKey),",
			promise: "A new item replaces only one that has expired and is no claim.",
			tests:   dynamo("^TestConformance$/^lease"),
		},
		{
			name: "dynamo-late-after-reopen", file: dir + "write.go",
			old: "AND attribute_exists(%s) AND \"+\n\t\t\t\"attribute_not_exists(%s) AND %s)\", state, c.name(aState),", with: "AND (attribute_exists(%s) OR \"+\n\t\t\t\"attribute_not_exists(%s)) AND %s)\", state, c.name(aState),",
			promise: "A late success counts only after a release as Unknown (rule 13).",
			tests:   dynamo("^TestConformance$/^complete"),
		},
		{
			name: "dynamo-repeated-answer", file: dir + "end.go",
			old: "return current != nil && current.Token == held.Token && said(current), nil", with: "return current != nil && said(current), nil",
			promise: "A verb is held only for the token of the claim.",
			tests:   dynamo("^TestConformance$/^(complete|release)"),
		},
		{
			name: "dynamo-lease-from-the-first-look", file: dir + "watch.go",
			old: "if s.token != r.Token || s.rev != r.rev {", with: "if s.token != r.Token {",
			promise: "A renewed claim gets its whole lease again.",
			tests:   dynamo("^TestWatchTellsStates$|^TestLeasesAtRandom$"),
		},
		{
			name: "dynamo-claim-without-stamp", file: dir + "claim.go",
			old: "\tnext.lease = q.lease\n\tnext.stamp()\n", with: "\tnext.lease = q.lease\n",
			promise: "An item is kept for its lease and its retention (rule 33).",
			tests:   dynamo("^TestConformance$/^(claim|lease)"),
		},
		{
			name: "dynamo-birth-is-asked-for-once", file: dir + "births.go",
			old: "if ok && now.Sub(known.asked) < birthAge {", with: "if ok {",
			promise: "A running process gives an emptied table its births back (rule 8).",
			tests:   dynamo("^TestBirthAfterTheTableWasEmptied_Rule8$"),
		},
		{
			name: "dynamo-emptied-table-is-born-anew", file: dir + "age.go",
			old: "if born.IsZero() {\n\t\tborn = now", with: "if true {\n\t\tborn = now",
			promise: "Events from before the emptying of a table stay TooOld (rule 8).",
			tests:   dynamo("^TestBirthAfterTheTableWasEmptied_Rule8$"),
		},
		{
			name: "dynamo-known-birth-needs-the-table", file: dir + "age.go",
			old:     "if born, err := ask(bounded); err == nil {\n\t\treturn born, nil\n\t}\n\treturn known, nil",
			with:    "return ask(bounded)",
			promise: "A throttled partition with a known birth fails no claim of other keys.",
			tests:   dynamo("^TestKnownBirthNeedsNoTable_Rule8$"),
		},
		{
			name: "dynamo-known-birth-is-asked-for-by-all", file: dir + "births.go",
			old: "birth{born: known.born, asked: now}", with: "known",
			promise: "One caller in ten minutes waits for a known birth.",
			tests:   ownedBy("dedup/dynamostore", "^TestOneCallerAsksForAKnownBirth_Rule8$"),
		},
		{
			name: "dynamo-look-uses-up-the-question", file: dir + "age.go",
			old: "\t\ts.births.askAgain(scope)\n", with: "",
			promise: "The next claim after a look gives an emptied table its births back (rule 8).",
			tests:   dynamo("^TestBirthAfterTheTableWasEmptied_Rule8$"),
		},
		{
			name: "dynamo-undone-forgets-in-doubt", file: dir + "end.go",
			old: "\tc.only = fmt.Sprintf(\"attribute_not_exists(%s)\", c.name(aDoubt))\n", with: "",
			promise: "Undone keeps the fingerprint of an earlier uncertain run.",
			tests:   dynamo("^TestConformance$/^release"),
		},
	}
}
