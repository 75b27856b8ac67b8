package main

// pageMutants are faults of the ops page, and of the state of a group that it shows.
func pageMutants() []mutant {
	page := func(run string) owner { return ownedBy("ops", run) }
	return []mutant{
		{
			name: "page-replays-by-another-verdict", file: "ops/plans.go",
			old:     "\t\tr.Verdict == planned.Verdict && r.Action == planned.Action\n",
			with:    "\t\tr.Replays()\n",
			promise: "A replay does what its plan has shown, or leaves the dead letter alone.",
			tests:   page("^TestReplay_SameVerdict$|^TestDeadLetterRow_SameAs$"),
		},
		{
			name: "page-unknown-dead-letters-are-zero", file: "ops/source_kafka.go",
			old:     "\t\tif p.Err != nil {\n\t\t\tt.Problem",
			with:    "\t\tif false {\n\t\t\tt.Problem",
			promise: "A dead-letter topic that is not known is not shown as empty.",
			tests:   page("^TestStart_NotKnown$"),
		},
		{
			name: "page-blocked-key-behind-many-is-hidden", file: "ops/source_deferred.go",
			old: "n >= maxQueues && !q.Blocked", with: "n >= maxQueues",
			promise: "A blocked key is listed, also behind many queues that are not blocked.",
			tests:   page("^TestDeferred_ManyQueues$"),
		},
		{
			name: "page-queues-of-the-first-page-only", file: "ops/source_deferred.go",
			old: "\t\t\tif len(queues) == page {\n", with: "\t\t\tif len(queues) < 0 {\n",
			promise: "A blocked key behind a full page of queues is found.",
			tests:   page("^TestDeferred_ManyQueues$"),
		},
		{
			name: "page-cut-partitions-are-empty", file: "ops/source_deferred.go",
			old: "state.More || (cut || !whole)", with: "state.More || (!whole && !cut)",
			promise: "Partitions that were not looked at are not taken for empty.",
			tests:   page("^TestDeferred_UnknownPartitions$"),
		},
		{
			name: "page-partitions-of-others-are-empty", file: "ops/source_deferred.go",
			old: "state.More || (cut || !whole)", with: "state.More || (whole && cut)",
			promise: "Without Kafka, partitions of other processes are not taken for empty.",
			tests:   page("^TestDeferred_UnknownPartitions$"),
		},
		{
			name: "page-dead-letter-of-another-scope", file: "ops/data.go",
			old: "(r.Scope == \"\" || r.Scope == key.Scope)", with: "(r.Scope == \"\" || r.Scope != \"\")",
			promise: "The page of an event leads to no dead letter of another scope.",
			tests:   page("^TestEventPage_DeadLettersOfItsScope$"),
		},
		{
			name: "page-unknown-lag-is-zero", file: "ops/data.go",
			old: "\t\tif p.Problem != \"\" {\n", with: "\t\tif false {\n",
			promise: "A lag that is not known is not shown as zero.",
			tests:   page("^TestStart_NotKnown$"),
		},
		{
			name: "group-beyond-the-end-has-caught-up", file: "internal/groups/lag.go",
			old: "case *p.Committed > p.End:", with: "case false:",
			promise: "A committed offset beyond the end of the log is reported (K-28).",
			tests:   ownedBy("internal/groups", "^TestPartition_K28$"),
		},
		{
			name: "dead-letters-by-the-time-of-the-record", file: "internal/deadletters/newest.go",
			old: "Cursor{l.Failed(), l.Place}, l.Row()", with: "Cursor{l.Record.Time, l.Place}, l.Row()",
			promise: "A dead letter that came back after a replay is on a page.",
			tests:   ownedBy("internal/deadletters", "^TestNewest_"),
		},
		{
			name: "dead-letters-of-one-time-once", file: "internal/deadletters/newest.go",
			old:     "other.Failed.Compare(c.Failed), cmp.Compare(c.Place.Partition, other.Place.Partition),",
			with:    "other.Failed.Compare(c.Failed), 0,",
			promise: "Dead letters that failed at one time are on a page, each once.",
			tests:   ownedBy("internal/deadletters", "^TestNewest_PagesHaveAll$"),
		},
	}
}
