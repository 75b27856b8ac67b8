package main

// commandMutants are faults of the command's verbs that change offsets, stores and queues.
func commandMutants() []mutant {
	cmd := func(run string) owner { return ownedBy("cmd/idem", run) }
	const folder = "cmd/idem/"
	return []mutant{
		{
			name: "rewind-looks-at-one-window", file: folder + "kafka.go",
			old: "back <= mostOffsets; back *= 16 {", with: "back <= firstWindow; back *= 16 {",
			promise: "A rewind of a late group finds its last record behind an aborted transaction.",
			tests:   cmd("^TestRewindBehindAnAbortedTransaction_P18$"),
		},
		{
			name: "rewind-unknown-is-caught-up", file: folder + "rewind.go",
			old: "case !searched && before > 0:", with: "case !searched && before < 0:",
			promise: "A rewind refuses a partition of which the last record is not known.",
			tests:   cmd("^TestRewindAim_P18$"),
		},
		{
			name: "rewind-overwrites-a-rewind", file: folder + "rewind.go",
			old: "!ok || at != r.Committed {", with: "!ok || at < 0 {",
			promise: "A rewind never moves a group forward that another person has rewound.",
			tests:   cmd("^TestRewindAfterAnotherRewind_P18$"),
		},
		{
			name: "rewind-sees-classic-members-only", file: "internal/groups/groups.go",
			old: "if len(members) == 0 {", with: "if len(members) < 0 {",
			promise: "A rewind refuses a running group of the protocol of KIP-848.",
			tests:   cmd("^TestRewindRefusesMembers$"),
		},
		{
			name: "import-believes-offsets-of-an-earlier-topic", file: folder + "import_topic.go",
			old: "if len(beyond) > 0 {", with: "if len(beyond) > len(spans) {",
			promise: "Records of a topic made anew do not count as handled.",
			tests:   cmd("^TestImportTopicMadeAnew_K28$"),
		},
		{
			name: "import-ends-well-at-an-open-transaction", file: folder + "import_topic.go",
			old: "\t\tif next < s.End {", with: "\t\tif next < s.Begin {",
			promise: "An import that stops at an open transaction says so, and fails.",
			tests:   cmd("^TestImportTopicOfAnOpenTransaction_K30$"),
		},
		{
			name: "import-drops-the-batch-before-an-open-transaction",
			file: folder + "import_topic.go",
			old:  "return errors.Join(open, im.flush(ctx))", with: "return open",
			promise: "An open transaction keeps no other record from the import.",
			tests:   cmd("^TestImportTopicOfAnOpenTransaction_K30$"),
		},
		{
			name: "release-trusts-its-first-look", file: "internal/events/deferred.go",
			old:     "p, err := findDeferred(ctx, e.Store, e.Key, e.topic)",
			with:    "p, err := e.Deferred, error(nil)",
			promise: "A released event lets its key go on, if it was given up during the question.",
			tests:   cmd("^TestReleaseOfAnEventThatIsBlockedMeanwhile_Rule4$"),
		},
		{
			name: "skip-trusts-its-first-look", file: "internal/events/deferred.go",
			old:     "e.Deferred = nil",
			with:    "if e.Deferred == nil { return nil }",
			promise: "A skipped event lets its key go on, if it was deferred during the question.",
			tests:   cmd("^TestSkipOfAnEventThatIsBlockedMeanwhile_Rule4$"),
		},
		{
			name: "skip-of-a-handled-event-is-done", file: folder + "event_skip.go",
			old: "if handled {", with: "if handled && e.Deferred == nil {",
			promise: "A handled event is never on record as skipped.",
			tests:   cmd("^TestSkipOfAHandledEventThatIsDeferred_Rule4$"),
		},
		{
			name: "json-leaves-delete", file: folder + "text.go",
			old: "return r >= unicode.MaxASCII &&", with: "return r > unicode.MaxASCII &&",
			promise: "The JSON of the command has no control character.",
			tests:   cmd("^TestJSONEscapesControlCharacters_G04$"),
		},
		{
			name: "failure-before-the-question-is-not-audited", file: folder + "audit.go",
			old: "!= asksAndAudits || a.isOnRecord() {", with: "!= asksAndAudits || a.begun {",
			promise: "A verb that asks has an audit line for each exit code but 2.",
			tests:   cmd("^TestAuditLineOfEachEnd$"),
		},
		{
			name: "doctor-hidden-tables-are-logged", file: "internal/doctor/postgres_judge.go",
			old: "choice{f.hidden, Unknown,", with: "choice{f.hidden, OK,",
			promise: "Tables that the doctor cannot see are never reported as logged.",
			tests:   ownedBy("internal/doctor", "^TestPostgresFacts$"),
		},
	}
}
