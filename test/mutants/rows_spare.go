package main

// spareMutants are faults of runs while the store is down.
func spareMutants() []mutant {
	const engine = "internal/engine/"
	tests := func(run string) owner { return ownedBy(".", run) }
	return []mutant{
		{
			name: "spare-event-never-asks-again", file: engine + "spare.go",
			old:     "\terr := b.p.attemptUnprotected(b.ctx, t)\n",
			with:    "\terr := b.p.attemptUnprotected(b.ctx, t)\n\tfor err == nil && !t.settled {\n\t\terr = b.p.attemptUnprotected(b.ctx, t)\n\t}\n",
			promise: "After an outage, the next attempt of an event that failed is claimed.",
			tests:   tests("^TestUnavailable_RetryIsClaimedAfterTheReturn_R19$"),
		},
		{
			name: "spare-runs-before-the-pause-of-its-call", file: engine + "batch.go",
			old: "if err := awaitPauses(b.ctx, t); err != nil {", with: "if err := awaitPauses(b.ctx); err != nil {",
			promise: "RetryAfter(d) of a whole call is no retry before d, also without the store.",
			tests:   tests("^TestUnavailable_PauseOfAWholeCallIsWaitedFor_Rule42$"),
		},
		{
			name: "spare-runs-after-a-long-wait", file: engine + "spare.go",
			old: "if !down || !t.route.spare.allows(ctx, p.reporter, t.route, o, true) {", with: "if down && o.since.IsZero() {",
			promise: "An event that waited for its handler's limits runs under a claim if the store is back.",
			tests:   tests("^TestUnavailable_ReturnDuringAPauseOfTheBreaker$"),
		},
		{
			name: "spare-failed-event-outlives-the-bound", file: engine + "spare.go",
			old: "|| now.Sub(a.first) >= p.RunFor {", with: "|| !again && now.Sub(a.first) >= p.RunFor {",
			promise: "Each attempt without the store begins within RunFor.",
			tests:   ownedBy("internal/engine", "^TestAllowance$"),
		},
		{
			name: "spare-failed-runs-are-forgotten", file: engine + "decide.go",
			old: "max(int(a.Failures), h.earlier) + h.failures - h.earlier", with: "max(int(a.Failures), h.earlier)",
			promise: "Failed runs without the store count for MaxAttempts.",
			tests:   tests("^TestUnavailable_FailedRunsCountAfterTheReturn$"),
		},
		{
			name: "spare-ignores-the-pause-of-a-call", file: engine + "spare.go",
			old: "if at := t.pending.notBefore; !at.IsZero() {", with: "if at := t.pending.notBefore; at.IsZero() && false {",
			promise: "An event that runs without the store waits for its RetryAfter.",
			tests:   tests("^TestUnavailable_RetryAfterOfACallIsWaitedFor_Rule42$"),
		},
	}
}
