package main

// guardMutants are faults of the guard, of Do and DoTx, of leases and of fingerprints.
func guardMutants() []mutant {
	dedup := func(run string) owner { return ownedBy("dedup", run) }
	return []mutant{
		{
			name: "lease-by-one-clock", file: "dedup/renewer.go",
			old: "return !now.Before(t) || !now.Round(0).Before(t.Round(0))", with: "return !now.Before(t)",
			promise: "A lease is over by the clock that is further on (rule 49).",
			tests:   dedup("^TestLeaseIsOverByTheClockThatIsFurtherOn$"),
		},
		{
			name: "lease-counts-from-the-answer", file: "dedup/guard.go",
			old:     "\t\t\treturn g.renewer.Claim(ctx, t, reqs[:], answers[:])\n\t\t}, func()",
			with:    "\t\t\terr := g.renewer.Claim(ctx, t, reqs[:], answers[:])\n\t\t\tsince = time.Now()\n\t\t\treturn err\n\t\t}, func()",
			promise: "A lease counts from before its request.",
			tests:   dedup("^TestDo_LeaseCountsFromTheRequest$|^TestDo_ClaimTakesLongerThanItsLease"),
		},
		{
			name: "late-answer-is-used", file: "dedup/guard.go",
			old: "case answers[0].Verdict.Held() && passed(since.Add(g.cfg.Lease), time.Now()):", with: "case false:",
			promise: "A grant that arrives after its lease is asked for again.",
			tests:   dedup("^TestDo_ClaimTakesLongerThanItsLease|^TestDo_ClaimsAlwaysTakeLonger"),
		},
		{
			name: "new-token-for-a-repetition", file: "dedup/guard.go",
			old: "return g.renewer.Claim(ctx, t, reqs[:], answers[:])", with: "return g.renewer.Claim(ctx, NewToken(), reqs[:], answers[:])",
			promise: "A claim that is repeated after a lost answer has the same token (R-01).",
			tests:   dedup("^TestDo_AnswerOfTheClaimIsLost_R01$"),
		},
		{
			name: "do-runs-uncertain", file: "dedup/do.go",
			old: "if a.Verdict == Uncertain && !g.cfg.Rerun {", with: "if a.Verdict == Uncertain && g.cfg.Rerun {",
			promise: "Do runs no function again whose run was cut short, unless Rerun is set.",
			tests:   dedup("^TestDo_ProcessDies_H07$"),
		},
		{
			name: "do-panic-is-a-failure", file: "dedup/do.go",
			old: "\t\t\t_ = entry.Release(ctx, Unknown)\n", with: "\t\t\t_ = entry.Release(ctx, Failed)\n",
			promise: "A panic leaves the outcome unknown.",
			tests:   dedup("^TestDo_PanicAndGoexit_H09$"),
		},
		{
			name: "do-cancelled-is-a-failure", file: "dedup/do.go",
			old: "if errors.Is(err, ErrUnknownOutcome) || cutShort(entry.Context(), err) {", with: "if errors.Is(err, ErrUnknownOutcome) {",
			promise: "A function that its context cut short leaves the outcome unknown.",
			tests:   dedup("^TestDo_CallerHangsUp_H05$|^TestDo_ClaimIsLost_R06$|^TestDo_"),
		},
		{
			name: "do-error-of-encoding-releases", file: "dedup/do.go",
			old:     "\treturn r, errors.Join(err, entry.Complete(ctx, result))",
			with:    "\tif err != nil {\n\t\treturn r, errors.Join(err, entry.Release(ctx, Failed))\n\t}\n\treturn r, errors.Join(err, entry.Complete(ctx, result))",
			promise: "A function whose result cannot be encoded has had its effect and is not run again.",
			tests:   dedup("^TestDo_ResultsThatCannotBeReplayed$"),
		},
		{
			name: "do-replays-another-schema", file: "dedup/do.go",
			old: "case a.Result.Schema == s.schema:", with: "case a.Result.Schema <= s.schema:",
			promise: "A result of another version is not replayed.",
			tests:   dedup("^TestDo_SchemaChanges$"),
		},
		{
			name: "do-finds-a-version-by-the-key", file: "dedup/do_option.go",
			old: "if s.schema != firstSchema && key.Validate() == nil {", with: "if false {",
			promise: "A version runs once within its own retention.",
			tests:   dedup("^TestDo_VersionOutlivesTheKey$|^TestDoTx_VersionOutlivesTheKey$"),
		},
		{
			name: "do-version-runs-beside-a-doubt", file: "dedup/do_version.go",
			old: "case b.Verdict == Uncertain && !g.cfg.Rerun:", with: "case false:",
			promise: "No version runs after another one ended in doubt.",
			tests:   dedup("^TestDo_VersionsShareTheKey$"),
		},
		{
			name: "do-version-keeps-an-unchecked-payload", file: "dedup/do_version.go",
			old: "_ = entry.Release(ctx, Undone)", with: "_ = entry.Release(ctx, Unstarted)",
			promise: "A call that the key refuses leaves no payload under its version.",
			tests:   dedup("^TestDo_RefusedVersionLeavesNothing$"),
		},
		{
			name: "dotx-version-skips-the-key", file: "dedup/dotx.go",
			old: "mayRun := !s.ofVersion()", with: "mayRun := true",
			promise: "A result of the version under the key itself is replayed.",
			tests:   dedup("^TestDoTx_VersionUnderTheKey$"),
		},
		{
			name: "dotx-halted-clock-goes-on", file: "dedup/claim_clock.go",
			old: "\tif c.halted {\n\t\treturn\n\t}\n", with: "",
			promise: "A function that began in time is not cancelled by the time-out of its claim.",
			tests:   ownedBy("dedup", "^TestHaltedClaimClockStaysHalted$"),
		},
		{
			name: "dotx-doubt-is-forgotten", file: "dedup/dotx.go",
			old: "case e.doubt != nil && (err != nil || a.Verdict == Busy) && !errors.Is(err, ErrUnknownCommit):", with: "case false:",
			promise: "A commit in doubt stays in doubt until the store has answered (P-11).",
			tests:   dedup("^TestDoTx_.*P11$"),
		},
		{
			name: "entry-does-not-retry", file: "dedup/entry.go",
			old: "err := retry(ctx, 0, func() error { return write(ctx) })", with: "err := write(ctx)",
			promise: "The end of an entry is retried for ten seconds (H-18).",
			tests:   dedup("^TestDo_ResultIs|^TestDo_ReleaseIsNotTaken"),
		},
		{
			name: "entry-shares-an-unwritten-result", file: "dedup/entry.go",
			old: "\tif err == nil {\n\t\tknown = a\n\t}\n", with: "\tknown = a\n",
			promise: "Followers get a result only after the store has it.",
			tests:   dedup("^TestDo_ResultIsNotTaken_H18$|^TestDo_"),
		},
		{
			name: "entry-ends-with-its-caller", file: "dedup/entry.go",
			old: "context.WithTimeout(context.WithoutCancel(ctx), finishTime)", with: "context.WithTimeout(ctx, finishTime)",
			promise: "A result is kept also if its caller has gone (H-05).",
			tests:   dedup("^TestDo_ResultOutlivesItsCaller_H05$"),
		},
		{
			name: "follower-gets-another-payload", file: "dedup/inflight.go",
			old: "case f.held && c.differs(f.fingerprint):", with: "case false:",
			promise: "A caller with another payload gets a conflict while the first one runs (H-03).",
			tests:   dedup("^TestDo_Conflict"),
		},
		{
			name: "follower-gets-answer-of-another-payload", file: "dedup/inflight.go",
			old: "f.answer.Verdict == 0 || f.fingerprint != c.Fingerprint:", with: "f.answer.Verdict == 0:",
			promise: "An answer is shared only among callers with one payload.",
			tests:   dedup("^TestDo_ConflictIsNotShared$|^TestDo_NoPayload"),
		},
		{
			name: "leader-error-is-shared", file: "dedup/inflight.go",
			old: "if ctx.Err() == nil && errors.Is(err, ErrUnavailable) {", with: "if err != nil {",
			promise: "The end of the leader's own context fails no other caller.",
			tests:   dedup("^TestDo_TheLeaderHangsUpWhileHeAsks$|^TestDo_TheLeader"),
		},
		{
			name: "fingerprints-of-two-kinds-differ", file: "dedup/fingerprint.go",
			old: "a != b && a != none && b != none && a.IsChecksum() == b.IsChecksum()", with: "a != b && a != none && b != none",
			promise: "A checksum and a keyed hash are not compared.",
			tests:   dedup("^TestFingerprint_"),
		},
		{
			name: "fingerprint-none-differs", file: "dedup/fingerprint.go",
			old: "a != b && a != none && b != none &&", with: "a != b && b != none &&",
			promise: "Without two fingerprints there is no conflict.",
			tests:   dedup("^TestFingerprint_"),
		},
		{
			name: "generation-counts-behind-retry", file: "dedup/claim.go",
			old:     "\tif p.Generation != q.Generation {\n\t\treturn p.Generation < q.Generation\n\t}\n\treturn p.Retry < q.Retry",
			with:    "\tif p.Retry != q.Retry {\n\t\treturn p.Retry < q.Retry\n\t}\n\treturn p.Generation < q.Generation",
			promise: "A replay supersedes all attempts of the generation before.",
			tests:   dedup("^TestPosition_Before$"),
		},
		{
			name: "key-order-ignores-tenant", file: "dedup/key.go",
			old: "\t\tstrings.Compare(k.Tenant, o.Tenant),\n", with: "",
			promise: "Requests ascend in one order, so that two batches never deadlock (P-04).",
			tests:   dedup("^TestKey_Compare$"),
		},
		{
			name: "key-without-escape", file: "dedup/key.go",
			old: "case c == '%', c == ':', c == '{', c == '}', c < 0x20, c == 0x7f:", with: "case c == ':', c == '{', c == '}', c < 0x20, c == 0x7f:",
			promise: "Different keys have different texts.",
			tests:   dedup("^TestKey_TextsDiffer$"),
		},
		{
			name: "uuid-with-scope", file: "dedup/key.go",
			old: "\tk.Scope = \"\"\n\th := sha256.New()", with: "\th := sha256.New()",
			promise: "The key for outside APIs outlives a new name of the group.",
			tests:   ownedBy(".", "^TestIdempotencyKey$|^TestIdentity"),
		},
		{
			name: "renewer-lost-claim-lives", file: "dedup/renewer.go",
			old:     "\t\t\tif passed(d, now) {\n\t\t\t\tdelete(k.kept, id)\n\t\t\t\te.lose()\n",
			with:    "\t\t\tif passed(d, now) {\n\t\t\t\tdelete(k.kept, id)\n",
			promise: "The loss of a claim cancels the handler.",
			tests:   dedup("^TestLeaseRenewerLosesAtTheDeadlineAndNotLater$"),
		},
		{
			name: "unanswered-completion-is-a-loss", file: "dedup/renewer_call.go",
			old: "case e.unanswered != nil:", with: "case false:",
			promise: "A record that was stored without an answer does not cancel its handler (H-18).",
			tests:   dedup("^TestEntry_AnswerOfTryCompleteIsLost_H18$"),
		},
		{
			name: "unanswered-completion-ends-with-the-lease", file: "dedup/renewer.go",
			old: "if !e.doubted() {", with: "if true {",
			promise: "A claim that is perhaps completed has no lease that ends (H-18).",
			tests:   dedup("^TestEntry_AnswerOfTryCompleteIsLost_H18$"),
		},
		{
			name: "refused-completion-is-in-doubt", file: "dedup/renewer_join.go",
			old: "\tdefault: // the store refused the completion: it has had no effect\n", with: "\tdefault:\n\t\tlast := done\n\t\te.unanswered = &last\n",
			promise: "A completion that the store refuses hides no loss of the claim (R-06).",
			tests:   dedup("^TestLeaseRenewerRefusedCompletionHidesNoLoss_R06$"),
		},
		{
			name: "unanswered-completion-is-not-repeated", file: "dedup/renewer_call.go",
			old: "\t_ = k.Complete(ctx, done)\n", with: "\t_, _ = ctx, done\n",
			promise: "A repeated completion finds that the claim was lost (R-06).",
			tests:   dedup("^TestEntry_TryCompleteIsNotTakenAndTheKeyIsLost_R06$"),
		},
		{
			name: "renewer-keeps-a-claim-that-is-over", file: "dedup/renewer.go",
			old: "\t\tcase passed(k.deadline(e), now):\n\t\t\te.lose()\n", with: "",
			promise: "A claim whose lease is over is lost at once.",
			tests:   dedup("^TestLeaseRenewer"),
		},
		{
			name: "renewer-future-since", file: "dedup/renewer.go",
			old: "\tif since.After(now) { // a mistake must not make the lease longer\n\t\tsince = now\n\t}\n", with: "",
			promise: "A wrong time of the request makes no lease longer.",
			tests:   dedup("^TestLeaseRenewer"),
		},
		{
			name: "renewer-one-failure-fails-all", file: "dedup/renewer_call.go",
			old: "\t\te.suspect = failed\n", with: "\t\te.suspect = false\n",
			promise: "A claim that cannot be renewed does not end the leases of others.",
			tests:   dedup("^TestLeaseRenewerLosesOnlyTheClaimThatCannotBeRenewed$"),
		},
		{
			name: "renewer-part-fails-all", file: "dedup/renewer_call.go",
			old: "if len(part.Failed) == 0 ||", with: "if true ||",
			promise: "A server that is down does not end the leases on other servers (R-06).",
			tests:   dedup("^TestLeaseRenewerKeepsTheClaimsOfOtherServers$"),
		},
		{
			name: "renewer-part-renews-all", file: "dedup/renewer_call.go",
			old: "\t\tfor _, i := range part.Failed {\n\t\t\tall[i] = resultFailed\n\t\t}\n", with: "",
			promise: "A claim whose renewal failed ends with its lease (R-06).",
			tests:   dedup("^TestLeaseRenewerKeepsTheClaimsOfOtherServers$"),
		},
		{
			name: "renewer-part-of-other-claims", file: "dedup/renewer_call.go",
			old: "|| !within(n, part.Failed) ||", with: "||",
			promise: "An error about claims that a renewal did not have renews none.",
			tests:   dedup("^TestResultsOfARenewal$"),
		},
		{
			name: "renewer-a-call-for-each-claim", file: "dedup/renewer_call.go",
			old: "slices.Chunk(suspects, max(1, size))", with: "slices.Chunk(suspects, max(1, 0*size))",
			promise: "An outage of the store does not make a call for each claim.",
			tests:   dedup("^TestLeaseRenewerBoundsTheCallsOfAnOutage$"),
		},
		{
			name: "shared-completion-of-any-size", file: "dedup/renewer_join.go",
			old: "len(batch) > 0 && size+w.size() > completeBytes:", with: "false:",
			promise: "Large results of many callers do not make a call that the server refuses.",
			tests:   dedup("^TestDo_LargeResultsOfManyCallers$"),
		},
		{
			name: "shared-completion-fails-all", file: "dedup/renewer_join.go",
			old: "alone := err != nil && len(batch) > 1 &&", with: "alone := false && len(batch) > 1 &&",
			promise: "A completion that the store refuses fails no other caller.",
			tests:   dedup("^TestLeaseRenewerCompletesAloneAfterARefusal$"),
		},
		{
			name: "unsent-claim-succeeds", file: "dedup/renewer_claim.go",
			old: "if ended := c.ctx.Err(); c.alone && ended != nil {", with: "if c.alone && c.ctx.Err() != nil {\n\t\treturn false, c.err\n\t}\n\tif ended := error(nil); false {",
			promise: "A claim that was never sent is no success.",
			tests:   dedup("^TestLeaseRenewerClaimUnsentIsNoSuccess$"),
		},
		{
			name: "claim-too-long-is-the-callers-fault", file: "dedup/guard.go",
			old: "\terr = tooLong(ctx, bounded, err)\n", with: "",
			promise: "A claim that the store does not answer in time finds the store unavailable (R-19).",
			tests:   dedup("^TestGuard_StoreTakesTooLong_R19$"),
		},
		{
			name: "claim-too-long-is-kept", file: "dedup/guard.go",
			old: "case !left:", with: "case !left && !errors.Is(err, errNoAnswer):",
			promise: "A claim whose call ended with the time limit is given back (rule 32).",
			tests:   dedup("^TestGuard_ClaimOfACallThatTookTooLongIsGivenBack_Rule32$"),
		},
		{
			name: "no-verdict-is-in-flight", file: "dedup/guard.go",
			old: "case answers[0].Verdict == 0:", with: "case false:",
			promise: "A store without an answer is not another caller at work.",
			tests:   dedup("^TestDo_StoreReturnsNoVerdict$"),
		},
		{
			name: "shared-claim-in-disorder", file: "dedup/renewer_claim.go",
			old:     "\tslices.SortFunc(from, func(a, b claimOrigin) int {\n\t\treturn a.caller.reqs[a.at].Key.Compare(b.caller.reqs[b.at].Key)\n\t})\n",
			with:    "",
			promise: "The requests of a shared call ascend (P-04).",
			tests:   dedup("^TestLeaseRenewerClaim"),
		},
		{
			name: "shared-claim-with-one-token", file: "dedup/renewer_claim.go",
			old: "reqs[i].Token = reqs[i].TokenOr(f.caller.token)", with: "reqs[i].Token = reqs[i].TokenOr(l.callers[0].token)",
			promise: "Each caller of a shared call keeps its own token.",
			tests:   dedup("^TestLeaseRenewerClaim"),
		},
		{
			name: "shared-claim-with-equal-keys", file: "dedup/renewer_claim.go",
			old:     "if n+len(c.reqs) > claimBatch ||\n\t\t\tslices.ContainsFunc(c.reqs, func(r Request) bool { return keys[r.Key] }) {",
			with:    "if n+len(c.reqs) > claimBatch {",
			promise: "A shared call asks for each key once.",
			tests:   dedup("^TestLeaseRenewerClaimSplitsEqualKeys$"),
		},
	}
}

// decisionMutants are faults of the decisions that memstore, dynamostore and sqlstore share.
func decisionMutants() []mutant {
	tests := func(run string) owner { return ownedBy("internal/decision", run) }
	return []mutant{
		{
			name: "record-busy-at-the-end-of-its-lease", file: "internal/decision/record.go",
			old: "r.State == Claimed && r.Lease.After(now) }", with: "r.State == Claimed && !r.Lease.Before(now) }",
			promise: "A claim ends with its lease, not later.",
			tests:   tests("^TestClaim$"),
		},
		{
			name: "record-any-token-holds", file: "internal/decision/record.go",
			old: "func (r *Record) HeldBy(t dedup.Token) bool { return r.State == Claimed && r.Token == t }", with: "func (r *Record) HeldBy(t dedup.Token) bool { return r.State == Claimed }",
			promise: "Only the token of the claim completes it (R-07).",
			tests:   tests("^Test"),
		},
		{
			name: "record-takeover-without-doubt", file: "internal/decision/record.go",
			old: "\t\t\tr.Doubt = true\n\t\t\tr.Takeovers++", with: "\t\t\tr.Takeovers++",
			promise: "A claim that ended by its lease makes the next one Uncertain.",
			tests:   tests("^TestClaim$"),
		},
		{
			name: "record-takeover-not-counted", file: "internal/decision/record.go",
			old: "\t\t\tr.Doubt = true\n\t\t\tr.Takeovers++", with: "\t\t\tr.Doubt = true",
			promise: "The take-overs of a crash loop are counted (rule 18).",
			tests:   tests("^Test"),
		},
		{
			name: "record-fence-stands", file: "internal/decision/record.go",
			old: "\t\tr.Fence++\n", with: "",
			promise: "The fence rises with each claim.",
			tests:   tests("^TestClaim_FenceRises$"),
		},
		{
			name: "record-conflict-before-token", file: "internal/decision/record.go",
			old: "return q.Position.Generation == 0 && q.Differs(", with: "return q.Differs(",
			promise: "A replayed copy may have been repaired.",
			tests:   tests("^TestClaim$"),
		},
		{
			name: "record-keeps-only-the-lease", file: "internal/decision/record.go",
			old: "r.Expires = r.Lease.Add(r.Retention)", with: "r.Expires = now.Add(r.Retention)",
			promise: "A record outlives its lease by the retention (rule 33).",
			tests:   tests("^TestClaim$"),
		},
		{
			name: "record-too-old-later-copy", file: "internal/decision/record.go",
			old: "!q.AnyAge && q.Position == (dedup.Position{}) &&", with: "!q.AnyAge &&",
			promise: "A copy for a later attempt is never too old (rule 8).",
			tests:   tests("^TestTooOld$"),
		},
		{
			name: "record-late-after-another-claim", file: "internal/decision/end.go",
			old: "c.Retry == 0 && r.MaySucceed && r.endedBy(Released, c.Token)", with: "c.Retry == 0 && r.endedBy(Released, c.Token)",
			promise: "A late success counts only after a release as Unknown (rule 13).",
			tests:   tests("^TestComplete$"),
		},
		{
			name: "record-late-after-a-failure-in-doubt", file: "internal/decision/end.go",
			old: "r.State, r.LastCall, r.MaySucceed = Open, Released, c.Outcome == dedup.Unknown", with: "r.State, r.LastCall, r.MaySucceed = Open, Released, r.Doubt || c.Outcome == dedup.Unknown",
			promise: "A late success counts only after a release as Unknown (rule 13).",
			tests:   tests("^TestRelease_LateSuccess$"),
		},
		{
			name: "record-release-by-anyone", file: "internal/decision/end.go",
			old:     "\tif !r.HeldBy(c.Token) {\n\t\treturn r.endedBy(Released, c.Token), false\n\t}\n\tr.State, r.LastCall,",
			with:    "\tr.State, r.LastCall,",
			promise: "A stale worker releases no claim of another worker (R-06).",
			tests:   tests("^TestRelease$"),
		},
		{
			name: "record-undone-forgets-in-doubt", file: "internal/decision/end.go",
			old: "if c.Outcome == dedup.Undone && !r.Doubt {", with: "if c.Outcome == dedup.Undone {",
			promise: "Undone keeps the fingerprint of an earlier uncertain run.",
			tests:   tests("^TestRelease_UndoneInDoubt$"),
		},
		{
			name: "record-reopened-with-old-failures", file: "internal/decision/end.go",
			old: "r.Doubt, r.Failures, r.Takeovers = false, 0, 0", with: "r.Doubt = false",
			promise: "A reopened event begins with no failures.",
			tests:   tests("^TestReopenAndDiscard$"),
		},
	}
}

// memoryMutants are faults of memstore.
func memoryMutants() []mutant {
	tests := func(run string) owner { return ownedBy("dedup/memstore", run) }
	return []mutant{
		{
			name: "memstore-full-store-grows", file: "dedup/memstore/memstore.go",
			old: "if n := count(); len(s.records)+n > s.capacity {", with: "if n := count(); n > s.capacity {",
			promise: "A full store refuses new keys.",
			tests:   tests("^TestFullRefusesNewKeysAndForgetsNothing$"),
		},
		{
			name: "memstore-too-old-needs-room", file: "dedup/memstore/memstore.go",
			old: "if s.lookUp(reqs[i].Key, now) == nil && !s.tooOld(&reqs[i]) {", with: "if s.lookUp(reqs[i].Key, now) == nil {",
			promise: "An event that is too old needs no room in a full store.",
			tests:   tests("^TestTooOldNeedsNoRoom_Rule8$"),
		},
		{
			name: "memstore-forgets-without-a-horizon", file: "dedup/memstore/memstore.go",
			old:     "\tif r != nil && !r.Expires.After(now) {\n\t\ts.remove(r)",
			with:    "\tif r != nil && !r.Expires.After(now) {\n\t\ts.drop(r)",
			promise: "An event that the store has forgotten is TooOld (rule 8).",
			tests:   tests("^TestTooOldBeforeTheSweep_Rule8$"),
		},
		{
			name: "memstore-expiry-not-moved", file: "dedup/memstore/memstore.go",
			old: "\t\tr.Renew(lease, now)\n\t\ts.expiry.fix(r)\n", with: "\t\tr.Renew(lease, now)\n",
			promise: "Records are forgotten in the order of their expiry.",
			tests:   tests("^TestRenewedClaimHidesNoExpiredRecord$"),
		},
		{
			name: "memstore-lost-claims-are-held", file: "dedup/memstore/memstore.go",
			old: "if !serve(&items[i], now) {", with: "if !serve(&items[i], now) && false {",
			promise: "A verb names the claims that were lost.",
			tests:   tests("^TestConformance$"),
		},
	}
}
