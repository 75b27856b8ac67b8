package main

// ownedBy names the tests of a package that need no service.
func ownedBy(pkg, run string) owner { return owner{pkg: pkg, run: run} }

// engineMutants are faults of the decisions about one event, and of the steps that carry them out.
func engineMutants() []mutant {
	const engine = "internal/engine/"
	tables := func(run string) owner { return ownedBy("internal/engine", run) }
	root := func(run string) owner { return ownedBy(".", run) }
	return []mutant{
		{
			name: "verdict-busy-is-duplicate", file: engine + "verdict.go",
			old:     "case dedup.Busy:\n\t\treturn decision{step: stepBusy}",
			with:    "case dedup.Busy:\n\t\treturn decision{step: stepSkip, joins: true}",
			promise: "A duplicate of an event in flight waits, because that run may still fail.",
			tests:   tables("^TestVerdict_Table$"),
		},
		{
			name: "verdict-unknown-runs", file: engine + "verdict.go",
			old:     "\tdefault:\n\t\treturn decision{}\n\t}\n}\n\nfunc copyDeadLetter",
			with:    "\tdefault:\n\t\treturn decision{step: stepRun}\n\t}\n}\n\nfunc copyDeadLetter",
			promise: "An answer of a later release runs no handler (rule 35).",
			tests:   tables("^TestVerdict_Table$"),
		},
		{
			name: "verdict-too-old-is-skipped", file: engine + "verdict.go",
			old: "return copyDeadLetter(\n\t\t\tidemtype.ClassTooOld", with: "return decision{step: stepSkip}\n\t\treturn copyDeadLetter(\n\t\t\tidemtype.ClassTooOld",
			promise: "An event that the store may have forgotten is dead-lettered, not dropped.",
			tests:   tables("^TestVerdict_Table$"),
		},
		{
			name: "verdict-tx-uncertain-runs", file: engine + "verdict.go",
			old: "if f.tx && a.Verdict == dedup.Uncertain {", with: "if false {",
			promise: "A transaction leaves no doubt: Uncertain is no valid answer for OnTx.",
			tests:   tables("^TestVerdict_Table$"),
		},
		{
			name: "verdict-uncertain-runs-at-most-once", file: engine + "verdict.go",
			old:     "case a.Verdict == dedup.Uncertain && p.atMostOnce() && !f.shadow:",
			with:    "case a.Verdict == dedup.Uncertain && p.atMostOnce() && f.shadow:",
			promise: "With DeadLetterUncertain a doubtful event never runs again (rule 5).",
			tests:   tables("^TestVerdict_Table$"),
		},
		{
			name: "crash-loop-one-more", file: engine + "verdict.go",
			old: "case a.Takeovers > maxTakeovers:", with: "case a.Takeovers > maxTakeovers+1:",
			promise: "An event that killed four holders is dead-lettered (rule 18).",
			tests:   tables("^TestVerdict_Table$"),
		},
		{
			name: "crash-loop-in-a-group", file: engine + "verdict.go",
			old: "return decision{step: stepRun, joins: a.Takeovers == 0}", with: "return decision{step: stepRun, joins: true}",
			promise: "An event that killed a holder runs alone (rule 18).",
			tests:   tables("^TestVerdict_Table$"),
		},
		{
			name: "failures-one-more", file: engine + "verdict.go",
			old: "int(a.Failures) >= p.Retry.MaxAttempts", with: "int(a.Failures) > p.Retry.MaxAttempts",
			promise: "A poison event gets MaxAttempts runs, also over restarts.",
			tests:   tables("^TestVerdict_Table$"),
		},
		{
			name: "dead-copy-is-dropped", file: engine + "verdict.go",
			old: "case f.own: // the dead letter", with: "default: // the dead letter",
			promise: "Another copy of a dead event is dead-lettered, never dropped (rule 6).",
			tests:   tables("^TestVerdict_Table$"),
		},
		{
			name: "conflict-copy-is-dropped", file: engine + "verdict.go",
			old:     "case p.Conflict != idemtype.DeadLetterConflict && a.Known == dedup.Done:",
			with:    "case p.Conflict != idemtype.DeadLetterConflict && a.Known != dedup.Busy:",
			promise: "A copy with another content is skipped only if the event is done (rule 6).",
			tests:   tables("^TestVerdict_Table$"),
		},
		{
			name: "in-doubt-forgets-stop", file: engine + "decide.go",
			old: "case transient, unknown, stopped:\n\t\treturn !o.unbegun", with: "case transient, unknown:\n\t\treturn !o.unbegun",
			promise: "At most once: a run that a stop cut short is dead-lettered as uncertain (rule 5).",
			tests:   tables("^TestDecide_Table$"),
		},
		{
			name: "lost-claim-is-released-as-failed", file: engine + "decide.go",
			old: "return action{kind: actReclaim, release: dedup.Unknown}", with: "return action{kind: actReclaim, release: dedup.Unstarted}",
			promise: "A run whose lease ended leaves the outcome unknown.",
			tests:   tables("^TestDecide_Table$"),
		},
		{
			name: "stopped-run-counts-as-unstarted", file: engine + "decide.go",
			old: "return action{kind: actGiveBack, release: dedup.Unknown}", with: "return action{kind: actGiveBack, release: dedup.Unstarted}",
			promise: "A run that a stop cut short makes the next claim Uncertain.",
			tests:   tables("^TestDecide_Table$"),
		},
		{
			name: "outage-counts-as-failure", file: engine + "decide.go",
			old: "if !h.blamed(o, p.Retry, at.now) {\n\t\t\treturn action{kind: actWait", with: "if h.blamed(o, p.Retry, at.now) {\n\t\t\treturn action{kind: actWait",
			promise: "While a store or a broker is down, no event loses an attempt.",
			tests:   tables("^TestDecide_Table$"),
		},
		{
			name: "retry-one-more", file: engine + "decide.go",
			old: "if h.attempt-h.earlier >= runs {", with: "if h.attempt-h.earlier > runs {",
			promise: "MaxAttempts bounds the runs in place.",
			tests:   tables("^TestDecide_"),
		},
		{
			name: "retry-ignores-in-place", file: engine + "decide.go",
			old: "left -= now.Sub(h.blockedSince)", with: "left -= min(0, now.Sub(h.blockedSince))",
			promise: "InPlace bounds the whole time that an event holds up the events behind it.",
			tests:   tables("^TestDecide_"),
		},
		{
			name: "retry-after-is-shortened", file: engine + "decide.go",
			old: "delay := max(o.after, backoff(p.Retry, h.attempt, at.draw))", with: "delay := min(max(o.after, 1), backoff(p.Retry, h.attempt, at.draw))",
			promise: "RetryAfter(d) is no retry before d.",
			tests:   tables("^TestDecide_"),
		},
		{
			name: "unnamed-failure-blames-all", file: engine + "decide.go",
			old: "if at.unnamed && failed && o.meaning", with: "if at.unnamed && !failed && o.meaning",
			promise: "A failed call that names no event is taken apart before an event is given up (rule 2).",
			tests:   tables("^TestDecide_Table$"),
		},
		{
			name: "backoff-without-ceiling", file: engine + "retry.go",
			old: "if shift := max(n-1, 0); low <= high>>shift {", with: "if shift := max(n-1, 0); shift < 30 {",
			promise: "A pause between attempts is at most MaxBackoff.",
			tests:   tables("^TestCeiling$"),
		},
		{
			name: "backoff-overflows", file: engine + "retry.go",
			old: "if shift := max(n-1, 0); low <= high>>shift {", with: "if shift := max(n-1, 0); shift < 30 && low<<shift < high {",
			promise: "A long pause between attempts does not overflow to a short one.",
			tests:   tables("^TestCeiling$"),
		},
		{
			name: "decoder-compared-by-type", file: "internal/decoded/decoded.go",
			old: "!reflect.ValueOf(d).Comparable()", with: "!reflect.TypeOf(d).Comparable()",
			promise: "A decoder that cannot be compared makes no event panic.",
			tests:   ownedBy("internal/decoded", "^TestValue_DecoderThatCannotBeCompared$"),
		},
		{
			name: "classify-permanent-loses", file: engine + "classify.go",
			old:     "case mark.Has(err, mark.Permanent):\n\t\to.meaning, o.class = permanent, idemtype.ClassPermanent\n\tcase",
			with:    "case cause == nil && mark.Has(err, mark.Permanent):\n\t\to.meaning, o.class = permanent, idemtype.ClassPermanent\n\tcase",
			promise: "The mark of the handler decides before the cause of its context.",
			tests:   tables("^TestClassify_Table$"),
		},
		{
			name: "classify-timeout-is-failure", file: engine + "classify.go",
			old: "o.meaning, o.class = unknown, idemtype.ClassTimeout", with: "o.meaning, o.class = transient, idemtype.ClassTimeout",
			promise: "A time-out leaves the outcome unknown.",
			tests:   tables("^TestClassify_Table$"),
		},
		{
			name: "named-index-out-of-range", file: engine + "classify.go",
			old: "case i < 0 || i >= n:", with: "case i < 0 || i > n:",
			promise: "A BatchError with a wrong index names no event.",
			tests:   tables("^TestClassify_"),
		},
		{
			name: "dead-letter-after-record", file: engine + "finish.go",
			old:     "\tif err := p.publishDeadLetter(hard, t.budget, p.failure(t, o)); err != nil {\n\t\trec.release(hard, t, t.action.release)\n\t\treturn attemptResult{}, err\n\t}\n",
			with:    "\tif err := p.publishDeadLetter(hard, t.budget, p.failure(t, o)); err != nil {\n\t\trec.release(hard, t, t.action.release)\n\t}\n",
			promise: "An event is given up only after its dead letter is acknowledged (rule 6).",
			tests:   root("^TestDeadLetter|^TestLoss"),
		},
		{
			name: "copy-not-acknowledged", file: engine + "finish.go",
			old:     "\tif err != nil {\n\t\trec.release(hard, t, t.action.release)\n\t\treturn attemptResult{}, err\n\t}\n\tt.ending, t.kind = endRescheduled",
			with:    "\tt.ending, t.kind = endRescheduled",
			promise: "An event is rescheduled only after its copy is acknowledged (rule 3).",
			tests:   root("^TestLoss"),
		},
		{
			name: "lapsed-lease-runs", file: engine + "group_claimed.go",
			old: "if !c.held.Alive() {", with: "if false {",
			promise: "No handler begins under an ended lease (K-12).",
			tests:   root("^TestLease"),
		},
		{
			name: "lost-completion-is-settled", file: engine + "group_claimed.go",
			old: "t.settlement, t.isolated = settlement{}, true", with: "t.isolated = true",
			promise: "An event whose claim was lost is claimed again before it is settled.",
			tests:   root("^TestLoss|^TestObserveLost"),
		},
		{
			name: "claims-held-during-wait", file: engine + "group_claimed.go",
			old: "g.releaseUnstarted(g.tasks[first:])", with: "_ = first",
			promise: "Claims are released before a batch waits for one event (rule 9).",
			tests:   root("^TestBatch"),
		},
		{
			name: "unstarted-claims-count-as-failures", file: engine + "group_claimed.go",
			old: "Claim: t.claim, Outcome: dedup.Unstarted, Retention: t.route.Retention,", with: "Claim: t.claim, Outcome: dedup.Failed, Retention: t.route.Retention,",
			promise: "A claim without a started handler counts no attempt.",
			tests:   root("^TestBatch_|^TestProcessor_"),
		},
		{
			name: "completion-error-is-dropped", file: engine + "group_claimed.go",
			old:     "gone, err := g.access.completeAll(hard, g.batch.budget, completions(good))\n\tif err != nil {\n\t\treturn false, err\n\t}",
			with:    "gone, err := g.access.completeAll(hard, g.batch.budget, completions(good))\n\t_ = err",
			promise: "An event is settled only after its completion is recorded.",
			tests:   root("^TestBatch_|^TestProcessor_|^TestStoreDown|^TestStop"),
		},
		{
			name: "copy-in-batch-settled-with-failed-leader", file: engine + "batch.go",
			old: "if !t.leader.handled || b.p.cfg.Shadow {", with: "if false {",
			promise: "A copy in the same batch is a duplicate only of a handled event.",
			tests:   root("^TestBatch_"),
		},
		{
			name: "abandoned-limit", file: engine + "batch.go",
			old: "n >= maxAbandoned {", with: "n > maxAbandoned {",
			promise: "With 64 hanging handlers no handler starts (rule 48).",
			tests:   root("^TestStop_TooManyAbandonedHandlers$"),
		},
		{
			name: "crash-guard-forgets-new-partitions", file: engine + "crash_guard.go",
			old: "delete(p.left, guardKey{topic, partition})", with: "_ = guardKey{topic, partition}",
			promise: "The first events of a new assignment are watched again (rule 18).",
			tests:   root("^TestTx_StartsAreCountedOnlyAfterAnAssignment$"),
		},
		{
			name: "crash-guard-forgets-unrun", file: engine + "attempt_tx.go",
			old: "if t.settled {\n\t\tp.clearStarts", with: "if true {\n\t\tp.clearStarts",
			promise: "A claim without a run does not prolong a crash loop (rule 18).",
			tests:   root("^TestTx_StartWithoutARunKeepsTheStartsBefore_Rule18$"),
		},
		{
			name: "stop-of-a-handlers-own", file: engine + "errors.go",
			old: "if stop && ctx.Err() == nil {", with: "if stop && ctx.Err() != nil {",
			promise: "The stop of a consumer inside a handler does not end the lane.",
			tests:   ownedBy("lane", "^TestPartition_StopOfTheHandlersOwn$"),
		},
		{
			name: "wait-of-a-handlers-own", file: engine + "errors.go",
			old: "return !wait && errors.As(e.err, target)", with: "return (true || wait) && errors.As(e.err, target)",
			promise: "A WaitError of a handler does not let a lane wait that must end.",
			tests:   ownedBy("lane", "^TestPartition_WaitOfTheHandlersOwn$"),
		},
		{
			name: "tx-contended-is-failure", file: engine + "group_tx.go",
			old: "case tg.failed < 0: // refused by COMMIT", with: "case tg.failed < -1: // refused by COMMIT",
			promise: "A refused COMMIT blames no event: each runs by itself (rule 12).",
			tests:   root("^TestBatchTx|^TestBatch"),
		},
		{
			name: "tx-unknown-commit-isolates", file: engine + "group_tx.go",
			old: "tg.failed < 0 && errors.Is(err, dedup.ErrUnavailable):", with: "false:",
			promise: "After a commit with an unknown outcome the group asks the store again (P-11).",
			tests:   root("^TestBatchTx_"),
		},
		{
			name: "reread-keeps-the-policy-without-a-handler", file: engine + "reread.go",
			old: "\tt.route = found\n", with: "\tdefer func() { t.route = found }()\n",
			promise: "A deferred event without a type stays in its queue and ends no process (rule 4).",
			tests:   root("^TestDefer_WithoutTypeStays$"),
		},
		{
			name: "isolated-event-ignores-retry-after", file: engine + "finish.go",
			old: "t.restUntil = time.Now().Add(t.action.delay)", with: "t.restUntil = time.Now()",
			promise: "RetryAfter holds for each event of a call (rule 42).",
			tests:   root("^TestBatch_RetryAfterOfACallIsWaitedFor_Rule42$"),
		},
		{
			name: "tx-group-ignores-retry-after", file: engine + "group_tx.go",
			old: "t.restFor(tg.outcome.after)", with: "t.restFor(0)",
			promise: "After a rollback no handler runs before the time of RetryAfter (rule 42).",
			tests:   root("^TestBatchTx_RetryAfterIsWaitedFor_Rule42$"),
		},
		{
			name: "dead-before-joins-a-queue", file: engine + "defer_look.go",
			old: "case dedup.TooOld, dedup.Dead:", with: "case dedup.TooOld:",
			promise: "An event that was dead before it met a queue holds up no other (rule 4).",
			tests:   root("^TestDefer_DeadBeforeTheQueueBlocksNothing_Rule4$"),
		},
		{
			name: "tx-rescheduled-head-overtaken", file: engine + "group_tx_order.go",
			old: "case !t.isDuplicate():", with: "case !t.isDuplicate() && t.answer.Verdict != dedup.Rescheduled:",
			promise: "No event overtakes one of its key that waits for a later attempt (rule 4).",
			tests:   root("^TestDefer_DeferredByTheOwnerBeforeInATransaction_Rule4$"),
		},
		{
			name: "tx-too-old-head-overtaken", file: engine + "group_tx_order.go",
			old: "exceptions[string(t.message.Key)] = true", with: "_ = t.message.Key",
			promise: "No event overtakes one of its key that is too old (rule 4).",
			tests:   root("^TestBatchTx_NoneOvertakesOneThatIsTooOld_Rule4$"),
		},
		{
			name: "tx-second-run-keeps-first-failure", file: engine + "group_tx.go",
			old: "tg.failed, tg.err, tg.outcome = -1, nil, outcome{}", with: "tg.outcome = outcome{}",
			promise: "A transaction that the store repeats forgets the result of the run before.",
			tests:   root("^TestBatchTx_|^TestTx_"),
		},
		{
			name: "tx-cancelled-handler-starts", file: engine + "group_tx.go",
			old: "err := ctx.Err() // no handler", with: "var err error // no handler",
			promise: "No handler starts in a cancelled transaction.",
			tests:   root("^TestBatchTx_|^TestTx_|^TestProcessor_"),
		},
		{
			name: "tx-ended-by-panicking-handler", file: engine + "group_tx.go",
			old: "(err == nil || errors.Is(state, dedup.ErrTxEnded)) {", with: "err == nil {",
			promise: "A handler that ends its transaction and fails has its claims taken back (P-13).",
			tests:   root("^TestBatchTx"),
		},
	}
}
