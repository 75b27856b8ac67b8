package main

// letterMutants are faults of the decisions about dead letters.
func letterMutants() []mutant {
	const letters = "internal/deadletters/"
	tests := func(run string) owner { return ownedBy("internal/deadletters", run) }
	return []mutant{
		{
			name: "letters-edit-is-another-content", file: letters + "survey.go",
			old: "\tif l.Edited != \"\" {\n\t\treturn textDigest(l.Edited)\n\t}\n", with: "",
			promise: "After an edit no advice gives one event a second ID.",
			tests:   tests("^TestSurvey_Decisions$|^TestReplayEdited_FailsAgain$"),
		},
		{
			name: "letters-contents-are-edits", file: letters + "survey.go",
			old: "k.strange || k.original != original", with: "k.strange",
			promise: "A content that was never handled is not deleted as done (rule 34).",
			tests:   tests("^TestSurvey_Decisions$"),
		},
		{
			name: "letters-uncorrected-twin-runs", file: letters + "survey.go",
			old: "\treturn after, after != before", with: "\treturn before, after != before",
			promise: "A correction in a file is not dropped for an equal dead letter of the event.",
			tests:   tests("^TestSurvey_Decisions$|^TestReplayEdited_Twins$"),
		},
		{
			name: "letters-uncorrected-twin-unblocks", file: letters + "survey.go",
			old: "k.edited && k.differ", with: "k.edited && k.strange",
			promise: "A line without the correction does not run the event in its queue.",
			tests:   tests("^TestSurvey_Decisions$"),
		},
		{
			name: "letters-discarded-one-is-chosen", file: letters + "survey.go",
			old: "\t\tif !discarded(at) {\n", with: "\t\tif discarded != nil {\n",
			promise: "A discarded dead letter does not hold up an equal one of its event.",
			tests:   tests("^TestDiscard_OneOfEqualOnes$"),
		},
		{
			name: "letters-second-best-runs-too", file: letters + "survey.go",
			old: "\tfor _, r := range s.spare[key] {\n", with: "\tfor _, r := range s.spare[key][:0] {\n",
			promise: "Of equal dead letters of an event one is replayed.",
			tests:   tests("^TestDiscard_OneOfEqualOnes$"),
		},
		{
			name: "letters-edit-of-a-vanished-one-is-dropped", file: "cmd/idem/dlq_edit.go",
			old:     "\td.leftAlone = d.leftAlone || l.Err != nil || !l.Replayed\n",
			with:    "\td.leftAlone = d.leftAlone || l.Edit != nil && !l.Replayed\n",
			promise: "The command keeps the text of a person until its replay.",
			tests:   ownedBy("cmd/idem", "^TestEditLeftAlone$"),
		},
		{
			name: "letters-edit-of-the-one-before", file: letters + "replay.go",
			old: "\tr.edit = nil\n\tfor try", with: "\tfor try",
			promise: "The audit log has the edits of each dead letter, and no others.",
			tests:   tests("^TestReplayEdited_TheNextOneFails$"),
		},
		{
			name: "letters-large-copy-is-done", file: letters + "replay.go",
			old: "errors.Join(r.missing, r.large)", with: "errors.Join(r.missing)",
			promise: "A replay with a copy that is too large does not end as done.",
			tests:   tests("^TestReplay_CopyTooLarge$"),
		},
		{
			name: "letters-replayed-by-another-verdict", file: letters + "replay.go",
			old:     "\tif r.what.Planned == nil || r.what.Planned(&row) {\n",
			with:    "\tif r.what.Planned == nil || r.what.Planned(&row) || r.began.Before(time.Now()) {\n",
			promise: "A replay does to a dead letter what its plan has shown, or nothing.",
			tests:   tests("^TestReplay_Planned$"),
		},
		{
			name: "letters-asked-before-the-topic", file: letters + "replay.go",
			old: "\t\t\tr.lookForTopic(j)\n", with: "",
			promise: "A discard that ends before the last question to the stores holds.",
			tests:   tests("^TestReplay_DiscardedMeanwhile$"),
		},
		{
			name: "letters-omitted-event-stays-dead", file: letters + "judge.go",
			old: "\tcase j.DeadLetter.Omitted:\n\t\tj.dead = true\n", with: "\tcase j.DeadLetter.Omitted:\n",
			promise: "A discard gives up the dead event of a dead letter without a value.",
			tests:   tests("^TestDiscard_ValueOmitted$"),
		},
	}
}
