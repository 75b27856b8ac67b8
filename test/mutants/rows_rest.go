package main

// httpMutants are faults of httpidem.
func httpMutants() []mutant {
	http := func(run string) owner { return ownedBy("httpidem", run) }
	return []mutant{
		{
			name: "http-fingerprint-without-body", file: "httpidem/fingerprint.go",
			old: "\tframe(len(p.Body))\n\tmac.Write(p.Body)\n", with: "\tframe(len(p.Body))\n",
			promise: "A key with another body is refused (H-03).",
			tests:   http("^TestFingerprint_Mutations_H03$"),
		},
		{
			name: "http-fingerprint-without-method", file: "httpidem/fingerprint.go",
			old: "\ttext(p.Method)\n", with: "",
			promise: "A key with another method is refused (H-03).",
			tests:   http("^TestFingerprint_Mutations_H03$"),
		},
		{
			name: "http-fingerprint-without-lengths", file: "httpidem/fingerprint.go",
			old: "\t\tframe(len(s))\n", with: "",
			promise: "No byte moves between the parts of a request (H-03).",
			tests:   http("^TestFingerprint_Mutations_H03$"),
		},
		{
			name: "http-fingerprint-without-tenant", file: "httpidem/fingerprint.go",
			old: "\ttext(tenant)\n", with: "",
			promise: "Tenants with equal requests have different fingerprints (H-12).",
			tests:   http("^TestFingerprint_"),
		},
		{
			name: "http-transport-header-wins", file: "httpidem/transport.go",
			old: "case own.key == key && len(header) == 1:", with: "case key != \"\":",
			promise: "WithKey replaces a key in the header that a gateway passes on.",
			tests:   http("^TestTransportHeader$|^TestTransportInGateway$"),
		},
		{
			name: "http-transport-two-keys-become-one", file: "httpidem/transport.go",
			old: "own.key == \"\" || own.fromHeader:", with: "own.key == \"\":",
			promise: "A transport behind another one leaves a header with two keys to the server.",
			tests:   http("^TestTransportBehindAnother$"),
		},
		{
			name: "http-transport-other-spelling-unseen", file: "httpidem/transport_header.go",
			old: "textproto.CanonicalMIMEHeaderKey(other) == name", with: "textproto.CanonicalMIMEHeaderKey(name) == other",
			promise: "A key in a header of any spelling is the only key of its request.",
			tests:   http("^TestTransportHeaderSpelling$|^TestTransportRedirectWithHeaderLines$"),
		},
		{
			name: "http-transport-body-waits-for-ever", file: "httpidem/transport_send.go",
			old: "\tcase <-ctx.Done():\n\t}\n\tgo func() {", with: "\t}\n\tgo func() {",
			promise: "The end of the context ends the wait for a body that does not come.",
			tests:   http("^TestTransportBodyThatDoesNotCome$|^TestTransportPipeWithoutWriter$"),
		},
		{
			name: "http-transport-body-panic-ends-the-process", file: "httpidem/transport_send.go",
			old: "\t\t\tr.panicked = recover()\n", with: "",
			promise: "A panic of a request's body reaches the caller of RoundTrip.",
			tests:   http("^TestTransportBodyThatPanics$"),
		},
		{
			name: "http-transport-late-panic-ends-the-process", file: "httpidem/transport_send.go",
			old: "\t\tdefer func() { _ = recover() }()\n\t\tclosing()", with: "\t\tclosing()",
			promise: "A panic of a body's Close after the end of the context is dropped.",
			tests:   http("^TestTransportBodyThatPanicsLate$"),
		},
		{
			name: "http-transport-drain-waits-for-ever", file: "httpidem/transport_send.go",
			old: "\tif more && s.answered {", with: "\tif false {",
			promise: "An answer that does not come to its end holds up no repeat.",
			tests:   http("^TestTransportAnswerThatDoesNotCome$"),
		},
		{
			name: "http-transport-answer-panic-ends-the-process", file: "httpidem/transport_send.go",
			old: "\t\tdefer func() { _ = recover() }()\n\t\t_ = closing()", with: "\t\t_ = closing()",
			promise: "A panic of an unread answer's Close reaches the caller of RoundTrip.",
			tests:   http("^TestTransportAnswerThatPanics$"),
		},
		{
			name: "http-transport-drains-the-last-answer", file: "httpidem/transport_send.go",
			old: "s.inTime(ctx, resp) &&\n\t\ts.attempts < orDefault(s.t.Attempts, DefaultAttempts)", with: "s.inTime(ctx, resp)",
			promise: "The caller gets the last answer with its body open.",
			tests:   http("^TestTransportLastAnswerIsNotDrained$"),
		},
		{
			name: "http-uncertain-runs", file: "httpidem/claimed.go",
			old: "case a.Verdict == dedup.Uncertain && !m.cfg.Rerun:", with: "case a.Verdict == dedup.Uncertain && m.cfg.Rerun:",
			promise: "A request that was cut short is not run again, unless Rerun is set.",
			tests:   http("^TestSuiteMemory$"),
		},
		{
			name: "http-fails-open", file: "httpidem/claimed.go",
			old: "case errors.Is(err, dedup.ErrUnavailable) && m.cfg.FailOpen:", with: "case errors.Is(err, dedup.ErrUnavailable):",
			promise: "Without its store a request is answered 503, unless FailOpen is set.",
			tests:   http("^TestStoreAwayAtTheEnd_H18$|^TestOutageIsLoggedOnce$"),
		},
		{
			name: "http-answer-before-its-record", file: "httpidem/claimed.go",
			old:     "\terr := c.entry.Complete(ctx, a.result(q.m.keeps, q.m.cfg.MaxResponse))\n\tc.log(\"answer could not be stored: the outcome of its key is unknown to later requests\", err)\n\tc.rec.send()\n",
			with:    "\tc.rec.send()\n\terr := c.entry.Complete(ctx, a.result(q.m.keeps, q.m.cfg.MaxResponse))\n\tc.log(\"answer could not be stored: the outcome of its key is unknown to later requests\", err)\n",
			promise: "The answer is stored before it is sent (H-23).",
			tests:   http("^TestAnswerIsStoredBeforeItIsSent_H23$"),
		},
		{
			name: "http-forgotten-early-frees-the-key", file: "httpidem/claimed.go",
			old: "c.forget = c.q.resultPolicy(a.status, false) == Forget; c.forget {\n", with: "c.q.resultPolicy(a.status, false) == Forget {\n\t\tc.early = c.entry.Release(c.q.r.Context(), c.q.forgotten())\n",
			promise: "No second handler runs beside one whose answer was sent early (H-04).",
			tests:   http("^TestEarlyAnswerThatIsForgotten_H04$"),
		},
		{
			name: "http-early-record-frees-the-key", file: "httpidem/claimed.go",
			old: "c.entry.TryComplete(c.q.r.Context(), c.record); c", with: "c.entry.Complete(c.q.r.Context(), c.record); c",
			promise: "A handler keeps its key if the store does not take its early answer (H-18).",
			tests:   http("^TestEarlyAnswerThatIsNotStored_H18$"),
		},
		{
			name: "http-early-record-not-tried-again", file: "httpidem/claimed.go",
			old: "\terr := c.entry.Complete(c.q.r.Context(), c.record)\n", with: "\terr := c.early\n",
			promise: "The record of an early answer is tried again after its handler (H-18).",
			tests:   http("^TestEarlyAnswerThatIsNotStored"),
		},
		{
			name: "http-panic-runs-again", file: "httpidem/claimed.go",
			old: "\t\terr = c.entry.Complete(ctx, q.panicked().result(q.m.keeps, q.m.cfg.MaxResponse))", with: "\t\terr = c.entry.Release(ctx, dedup.Failed)",
			promise: "A handler that panicked is not run again (H-09).",
			tests:   http("^TestSuiteMemory$"),
		},
		{
			name: "http-lost-claim-runs-on", file: "httpidem/claimed.go",
			old: "cancelsHandler(cause) {\n", with: "cancelsHandler(cause) && lost == nil {\n",
			promise: "The loss of a claim cancels the handler.",
			tests:   http("^TestClose|^TestHandlerThatDoesNotEnd$|^TestSuiteMemory$"),
		},
		{
			name: "http-paused-before-the-handler", file: "httpidem/claimed.go",
			old: "\t\tif err := entry.Begin(q.r.Context()); err != nil {\n\t\t\tq.unavailable(w, err)\n\t\t\treturn\n\t\t}\n", with: "",
			promise: "No handler begins under an ended lease (K-12).",
			tests:   http("^TestLease_PausedBeforeTheHandler$"),
		},
		{
			name: "http-replay-with-another-status", file: "httpidem/respond.go",
			old: "if q.m.cfg.ReplayWith200 && a.status < 300 &&", with: "if a.status < 300 &&",
			promise: "A replay has the status of the first answer (H-16).",
			tests:   http("^TestSuiteMemory$|^TestReplayWith200$"),
		},
		{
			name: "http-replay-is-not-marked", file: "httpidem/respond.go",
			old: "\tw.Header().Set(q.m.cfg.ReplayedHeader, \"true\")\n", with: "",
			promise: "A replay is marked by its header.",
			tests:   http("^TestSuiteMemory$"),
		},
		{
			name: "http-in-flight-without-retry-after", file: "httpidem/respond.go",
			old: "\tdefault:\n\t\tq.retryLater(w)\n", with: "\tdefault:\n",
			promise: "A request whose key is in flight gets 409 with Retry-After.",
			tests:   http("^TestSuiteMemory$"),
		},
		{
			name: "http-replays-cookies", file: "httpidem/replay_headers.go",
			old: "\t\t\"Set-Cookie\", \"Set-Cookie2\", \"Authentication-Info\",\n", with: "",
			promise: "A replay carries no cookie, whatever the Config names (H-13).",
			tests:   http("^TestAnswer_|^TestDefaultReplayHeaders_H13$"),
		},
	}
}

// outboxMutants are faults of the relay and of pgoutbox.
func outboxMutants() []mutant {
	relay := func(run string) owner { return ownedBy("outbox", run) }
	pg := func(run string) owner { return served("outbox/pgoutbox", run, "postgres") }
	my := func(run string) owner { return served("outbox/sqloutbox/mysql", run, "mariadb") }
	const sql = "outbox/pgoutbox/sql/"
	return []mutant{
		{
			name: "relay-settles-what-failed", file: "outbox/relay_round.go",
			old: "\t\tb.fail(row, ok)\n\t\tb.broker++", with: "\t\tb.sent(i)\n\t\tb.fail(row, ok)\n\t\tb.broker++",
			promise: "A row is settled only after its acknowledgement (O-08).",
			tests:   relay("^TestRelay_MarksOnlyAcked_O08$"),
		},
		{
			name: "relay-without-shards-owes-an-answer", file: "outbox/relay_round.go",
			old:     "\t\tr.health.store.clear(ctx, \"fetch\")\n\t\tr.health.answers()\n\t\treturn nil",
			with:    "\t\treturn nil",
			promise: "A relay without shards is ready.",
			tests:   relay("^TestRelay_ReadyWithoutShards$"),
		},
		{
			name: "relay-missing-results-are-sent", file: "outbox/relay_round.go",
			old: "errs = append(errs, errNoResult)", with: "errs = append(errs, nil)",
			promise: "A row without a result of the producer is not settled (O-08).",
			tests:   relay("^TestRelay_MissingResults_O08$"),
		},
		{
			name: "relay-overtakes-a-failure", file: "outbox/relay_batch.go",
			old: "\tb.stuck[aggregateOf(row)] = true\n\tb.seen.Failed++", with: "\tb.seen.Failed++",
			promise: "No row is published before a failed one of its aggregate (O-09).",
			tests:   relay("^TestRelay_FailureBeyondTheBound_O09$"),
		},
		{
			name: "relay-order-of-fetch", file: "outbox/relay_batch.go",
			old: "\tslices.SortFunc(rows, func(a, b Row) int { return int(min(max(a.Seq-b.Seq, -1), 1)) })\n", with: "",
			promise: "Rows are published in the order of commits.",
			tests:   relay("^TestRelay_"),
		},
		{
			name: "relay-old-epoch-publishes", file: "outbox/relay_batch.go",
			old: "if lease, ok := held[row.Shard]; !ok || lease != b.leases[row.Shard] {", with: "if _, ok := held[row.Shard]; !ok {",
			promise: "Rows fetched under an earlier epoch are not published (O-13).",
			tests:   relay("^TestRelay_EpochChanged_O13$"),
		},
		{
			name: "relay-publishes-without-a-lease", file: "outbox/relay_batch.go",
			old: "if lease, ok := held[row.Shard]; !ok || lease != b.leases[row.Shard] {", with: "if lease, ok := held[row.Shard]; ok && lease != b.leases[row.Shard] {",
			promise: "A relay publishes only rows of shards that it holds (O-13).",
			tests:   relay("^TestRelay_StandsStill_O13$|^TestRelay_CannotRenew_O13$"),
		},
		{
			name: "relay-halt-goes-on", file: "outbox/relay_batch.go",
			old: "\t\tif row.Blocked {\n\t\t\tb.stuck[id] = true", with: "\t\tif row.Blocked {\n\t\t\tb.stuck[id] = false",
			promise: "With Halt no row behind a parked one is published (O-10).",
			tests:   relay("^TestRelay_"),
		},
		{
			name: "relay-park-goes-on-in-the-round", file: "outbox/relay_batch.go",
			old: "b.stuck[id], b.parked[id] = true, true", with: "b.parked[id] = true",
			promise: "No row follows a parked one in its round (O-10).",
			tests:   relay("^TestRelay_"),
		},
		{
			name: "relay-parks-for-the-broker", file: "outbox/relay_failures.go",
			old: "\tif !broker {\n\t\tif e.row", with: "\tif true {\n\t\tif e.row",
			promise: "An outage of the broker parks no row (O-15).",
			tests:   relay("^TestFailures_Count$|^TestRelay_BrokerAway_O15$"),
		},
		{
			name: "relay-never-parks", file: "outbox/relay_round.go",
			old: "if ok && blamed >= r.cfg.MaxAttempts {", with: "if ok && blamed > r.cfg.MaxAttempts {",
			promise: "A row is parked after MaxAttempts (O-10).",
			tests:   relay("^TestRelay_NoTopicBackOff_O10$|^TestRelay_PoisonIsParked_O10$"),
		},
		{
			name: "relay-forgets-unsettled-rows", file: "outbox/relay_round.go",
			old: "\tlost, err := r.cfg.Store.Settle(call, r.share.relay, leases, s.what)\n", with: "\tr.pending = nil\n\tlost, err := r.cfg.Store.Settle(call, r.share.relay, leases, s.what)\n",
			promise: "An outage of the database makes no duplicates (O-07).",
			tests:   relay("^TestRelay_SettleFails_NoDuplicates_O07$"),
		},
		{
			name: "relay-lease-from-the-answer", file: "outbox/relay_share.go",
			old:     "\tbegan := time.Now()\n\tleases, err := s.store.Hold(call, s.relay, s.lease, shared)\n",
			with:    "\tleases, err := s.store.Hold(call, s.relay, s.lease, shared)\n\tbegan := time.Now()\n",
			promise: "A lease counts from before its request (O-13).",
			tests:   relay("^TestShare_CountsFromTheRequest_O13$"),
		},
		{
			name: "relay-lease-by-one-clock", file: "outbox/relay_leases.go",
			old: "return !mono.Before(d.mono) || !wall.Before(d.wall)", with: "return !mono.Before(d.mono)",
			promise: "A lease is over by the clock that is further on (rule 49).",
			tests:   relay("^TestDeadline_EarlierClock_Rule49$"),
		},
		{
			name: "relay-lease-without-margin", file: "outbox/relay_leases.go",
			old: "newDeadline(began.Add(left - s.lease/6))", with: "newDeadline(began.Add(left))",
			promise: "A lease ends a sixth early for the relay.",
			tests:   relay("^TestShare_|^TestRelay_StandsStill_O13$"),
		},
		{
			name: "relay-unrenewed-lease-is-whole", file: "outbox/relay_leases.go",
			old: "\t\tif l.Left != 0 {\n", with: "\t\tif l.Left < 0 {\n",
			promise: "A lease that could not be renewed ends as before (O-13).",
			tests:   relay("^TestShare_"),
		},
		{
			name: "relay-two-of-an-aggregate-at-once", file: "outbox/relay_waves.go",
			old: "\t\t\tdepth[id]++\n", with: "",
			promise: "A wave has one row of an aggregate (O-09).",
			tests:   relay("^TestWaves_OneOfEachAggregate$"),
		},
		{
			name: "pgoutbox-settles-for-any-epoch", file: sql + "settle_sent.sql",
			old: "ON h.shard = s.shard AND h.epoch = s.epoch\n", with: "ON h.shard = s.shard\n",
			promise: "Only the holder of the current epoch settles (O-13).",
			tests:   pg("^TestConformance$/^queue$"),
		},
		{
			name: "pgoutbox-settles-for-any-relay", file: sql + "settle_sent.sql",
			old: "    WHERE s.relay = $3),\n", with: "    WHERE s.relay = $3 OR true),\n",
			promise: "Only the holder of a shard settles its rows (O-13).",
			tests:   pg("^TestConformance$/^queue$"),
		},
		{
			name: "pgoutbox-settles-by-number", file: sql + "settle_sent.sql",
			old: "r(seq, id))) IS TRUE\n", with: "r(seq, id))) IS NOT NULL\n",
			promise: "The number of a lost row settles no other event (O-16).",
			tests:   pg("^TestConformance$/^queue$/^NumberGivenTwice$"),
		},
		{
			name: "pgoutbox-operates-by-number", file: sql + "parked_end.sql",
			old: "o.event_id = $2", with: "($2::text = '' OR true)",
			promise: "The number of a lost row retries and skips no other event (O-16).",
			tests:   pg("^TestConformance$/^queue$/^ParkedNumberGivenTwice$"),
		},
		{
			name: "myoutbox-operates-by-number", file: "outbox/sqloutbox/mysql/parked.go",
			old: "case event != row.EventID:", with: "case false:",
			promise: "The number of a lost row retries and skips no other event (O-16).",
			tests:   my("^TestConformance$/^read_committed$/^ParkedNumberGivenTwice$"),
		},
		{
			name: "myoutbox-settles-by-number", file: "outbox/sqloutbox/mysql/settle.go",
			old: "ok && row.event == r.EventID && ", with: "ok && ",
			promise: "The number of a lost row settles no other event (O-16).",
			tests:   my("^TestConformance$/^read_committed$/^NumberGivenTwice$"),
		},
		{
			name: "myoutbox-reads-at-the-sessions-level", file: "outbox/sqloutbox/mysql/session.go",
			old: "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", with: "SET @idem_level = 0",
			promise: "No event of an open transaction is published (O-01).",
			tests:   my("^TestReadsCommittedRows_O01$"),
		},
		{
			name: "myoutbox-waits-for-commit", file: "outbox/sqloutbox/mysql/session.go",
			old:     `conn.ExecContext(ctx, "COMMIT")`,
			with:    `conn.ExecContext(context.WithoutCancel(ctx), "COMMIT")`,
			promise: "A server that does not answer holds no relay.",
			tests:   my("^TestContextBoundsTheEndOfATransaction$/^Settle$"),
		},
		{
			name: "pgoutbox-epoch-stands", file: sql + "take.sql",
			old: "epoch = s.epoch + 1,", with: "epoch = s.epoch,",
			promise: "A shard that is taken over has a new epoch (O-13).",
			tests:   pg("^TestConformance$/^queue$"),
		},
		{
			name: "pgoutbox-takes-a-live-shard", file: sql + "take.sql",
			old: "(relay <> $1 AND lease_until <= clock_timestamp())", with: "(relay <> $1)",
			promise: "A shard is taken only after its lease (O-04).",
			tests:   pg("^TestConformance$/^queue$"),
		},
		{
			name: "pgoutbox-share-rounded-up", file: sql + "give.sql",
			old: "CASE WHEN a.before < a.shards % a.relays THEN", with: "CASE WHEN a.before < a.relays THEN",
			promise: "Relays share the shards evenly (O-05).",
			tests:   pg("^TestConformance$/^queue$/^RelaysShareEvenly$"),
		},
		{
			name: "pgoutbox-renews-others", file: sql + "renew.sql",
			old: "SELECT shard FROM {shards} WHERE relay = $1 ORDER BY shard FOR NO KEY", with: "SELECT shard FROM {shards} WHERE relay = $1 OR relay IS NOT NULL ORDER BY shard FOR NO KEY",
			promise: "A relay renews only its own shards (O-13).",
			tests:   pg("^TestConformance$/^queue$"),
		},
		{
			name: "pgoutbox-fetch-out-of-order", file: sql + "fetch.sql",
			old: "        ORDER BY o.seq NULLS FIRST -- see idem_outbox_waiting\n", with: "        ORDER BY o.seq DESC\n",
			promise: "Rows are fetched without a gap, the oldest first.",
			tests:   pg("^TestConformance$/^queue$"),
		},
		{
			name: "pgoutbox-blocked-is-not-seen", file: sql + "fetch.sql",
			old: "             AND p.seq < c.seq)\n", with: "             AND p.seq > c.seq)\n",
			promise: "A row behind a parked one is blocked with Halt (O-10).",
			tests:   pg("^TestConformance$/^queue$"),
		},
		{
			name: "pgoutbox-skip-overtakes-blocked-rows", file: sql + "fetch.sql",
			old: "AND b.seq < c.seq)) AS blocked", with: "AND b.seq > c.seq)) AS blocked",
			promise: "No row overtakes one that Halt has blocked, whatever the policy (O-10).",
			tests:   pg("^TestConformance$/^queue$"),
		},
		{
			name: "relay-skip-leaves-blocked-rows-waiting", file: "outbox/relay_batch.go",
			old: "\t\tif row.Blocked || halt && ", with: "\t\tif halt && row.Blocked || halt && ",
			promise: "A row behind a blocked one is blocked whatever the policy (O-10).",
			tests:   relay("^TestRelay_HaltThenSkip_O10$"),
		},
		{
			name: "pgoutbox-blocks-released-rows", file: sql + "settle_blocked.sql",
			old: "      AND p.seq < o.seq)", with: "      AND p.seq < o.seq) OR o.seq = ANY ($4::bigint[])",
			promise: "A row that a person has released is not blocked.",
			tests:   pg("^TestConformance$/^queue$"),
		},
		{
			name: "pgoutbox-mark-without-the-freed", file: "outbox/pgoutbox/queue.go",
			old: "\treturn q.freed + len(q.log)\n", with: "\treturn len(q.log)\n",
			promise: "The rollback of a savepoint forgets no event that was written before (rule 20).",
			tests:   pg("^TestSavepoint_"),
		},
		{
			name: "pgoutbox-frees-under-a-savepoint", file: "outbox/pgoutbox/queue.go",
			old: "\tif !q.marked {\n", with: "\tif true {\n",
			promise: "Entries that a savepoint has undone are written again (rule 20).",
			tests:   pg("^TestSavepoint_|^TestLentTransaction$"),
		},
		{
			name: "pgoutbox-rows-lose-their-order", file: sql + "insert.sql",
			old: "ORDER BY r.n", with: "ORDER BY r.n DESC",
			promise: "The numbers of the rows of a transaction follow its calls (rule 22).",
			tests:   pg("^TestConformance$/^queue$|^TestNumbersFollowCommits$"),
		},
	}
}

// identityMutants are faults of the parts that find IDs, types and fingerprints.
func identityMutants() []mutant {
	root := func(run string) owner { return ownedBy(".", run) }
	const dir = "internal/identity/"
	return []mutant{
		{
			name: "identity-disagreement-is-ignored", file: dir + "standard.go",
			old: "case !bytes.Equal(v, found):", with: "case false:",
			promise: "An event with two IDs that disagree is dead-lettered.",
			tests:   root("^TestIdentity|^TestTypesFromSeveralSources|^TestBadInput$"),
		},
		{
			name: "identity-without-source", file: dir + "standard.go",
			old: "\t\tif err != nil || !ce {\n", with: "\t\tif err != nil || ce {\n",
			promise: "Equal IDs of two CloudEvents sources are two events.",
			tests:   root("^TestIdentity"),
		},
		{
			name: "identity-joined-without-word", file: dir + "standard.go",
			old: "\t\treturn wordJoined + joined, nil\n", with: "\t\treturn joined, nil\n",
			promise: "A joined ID never equals a plain one.",
			tests:   root("^TestIdentity"),
		},
		{
			name: "identity-first-of-hides-errors", file: dir + "composite.go",
			old: "err == nil || !errors.Is(err, idemtype.ErrNotFound) {", with: "err == nil {",
			promise: "An invalid ID is refused, although another source has one (rule 7).",
			tests:   root("^TestIdentity|^TestExtractor|^TestReread"),
		},
		{
			name: "identity-part-is-missing", file: dir + "composite.go",
			old: "\t\tif err != nil {\n\t\t\treturn nil, err\n\t\t}\n\t\tfound[i] =", with: "\t\tif err != nil && i == 0 {\n\t\t\treturn nil, err\n\t\t}\n\t\tfound[i] =",
			promise: "A joined ID needs all of its parts.",
			tests:   root("^TestIdentity|^TestExtractor|^TestMessage"),
		},
	}
}

// authMutants are faults of the cache of tokens.
func authMutants() []mutant {
	tests := func(run string) owner { return ownedBy("kafkaauth", run) }
	const file = "kafkaauth/cache.go"
	return []mutant{
		{
			name: "token-used-beyond-its-end", file: file,
			old: "return c.token.Value != \"\" && !passed(c.end, now) }", with: "return c.token.Value != \"\" }",
			promise: "No token is used after its end.",
			tests:   tests("^TestCached_"),
		},
		{
			name: "token-by-one-clock", file: file,
			old: "return !now.Before(t) || !now.Round(0).Before(t.Round(0))", with: "return !now.Before(t)",
			promise: "A token ends by the clock that is further on (rule 49).",
			tests:   tests("^TestTokenEndsByTheClockThatIsFurtherOn$"),
		},
		{
			name: "token-expired-is-kept", file: file,
			old: "if f.err == nil && !f.token.Expires.IsZero() && !f.token.Expires.After(time.Now()) {", with: "if false {",
			promise: "A new token that is expired already is refused.",
			tests:   tests("^TestCached_RefusesBadTokens$"),
		},
		{
			name: "token-many-fetches", file: file,
			old: "if c.running == nil && ctx.Err() == nil {", with: "if ctx.Err() == nil {",
			promise: "One fetch runs at a time.",
			tests:   tests("^TestCached_OneFetchAtATime$"),
		},
		{
			name: "token-fetch-ends-with-its-caller", file: file,
			old: "c.begin(context.WithoutCancel(ctx), limit)", with: "c.begin(ctx, limit)",
			promise: "A caller that gives up is no failure of the source.",
			tests:   tests("^TestCached_CallersGiveUp$"),
		},
		{
			name: "token-no-pause-after-a-failure", file: file,
			old: "c.err, c.retry = f.err, now.Add(retryPause)", with: "c.err, c.retry = f.err, now",
			promise: "After a failure the source is left alone for a second.",
			tests:   tests("^TestCached_"),
		},
		{
			name: "token-pause-outlives-the-token", file: file,
			old: "\t\tif c.retry.After(c.end) {\n\t\t\tc.retry = c.end\n\t\t}\n", with: "",
			promise: "After the end of the old token the source is asked at once.",
			tests:   tests("^TestCached_PauseEndsWithTheToken$"),
		},
		{
			name: "token-good-one-is-thrown-away", file: file,
			old: "\tif c.good(time.Now()) { // it may have ended meanwhile\n\t\treturn c.token, nil\n\t}\n", with: "",
			promise: "A failed fetch leaves the old token in use while it is good.",
			tests:   tests("^TestCached_"),
		},
	}
}
