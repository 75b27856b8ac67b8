package main

// inOrderMutants are faults of the batches that keep the order of their messages.
func inOrderMutants() []mutant {
	const publish = "consumer/internal/publish/"
	tests := func(run string) owner { return ownedBy("consumer/internal/publish", run) }
	return []mutant{
		{
			name: "inorder-behind-a-failed-one", file: publish + "inorder.go",
			old: "case failed[at] || !ordered:", with: "case !ordered:",
			promise: "A message is in the log only behind all earlier messages of its key (O-09).",
			tests:   tests("^TestProduceInOrder_TooLargeForSarama_O09$"),
		},
		{
			name: "inorder-key-in-two-partitions", file: publish + "inorder.go",
			old: "case failed[at] || !ordered:", with: "case failed[at] || !ordered && false:",
			promise: "Order is kept within one partition of a key only (O-09).",
			tests:   tests("^TestProduceInOrder_RoundRobin_O09$"),
		},
		{
			name: "inorder-back-in-the-first-partition", file: publish + "inorder.go",
			old: "\t\tkeys[id] = partition{m.Topic, -1}\n", with: "\t\t_ = id\n",
			promise: "No message overtakes one of its key that has another partition (O-09).",
			tests:   tests("^TestOnePartition$"),
		},
		{
			name: "inorder-sends-behind-a-failed-batch", file: publish + "inorder.go",
			old: "\t\tqueue = nil\n", with: "",
			promise: "No batch of a partition follows one that failed (O-09).",
			tests:   tests("^TestProduceInOrder_Sizes_O09$"),
		},
		{
			name: "inorder-second-half-first", file: publish + "inorder.go",
			old: "append([]*orderedBatch{first, second}, queue...)", with: "append([]*orderedBatch{second, first}, queue...)",
			promise: "The first half of a batch goes first (O-09).",
			tests:   tests("^TestProduceInOrder_Sizes_O09$"),
		},
		{
			name: "inorder-halves-after-no-answer", file: publish + "inorder.go",
			old: " && len(b.indexes) > 1 && !b.unknown:", with: " && len(b.indexes) > 1:",
			promise: "A batch that may have been appended is not halved (K-35).",
			tests:   tests("^TestProduceInOrder_NoHalvesAfterNoAnswer_K35$"),
		},
		{
			name: "inorder-number-used-twice", file: publish + "inorder.go",
			old: "c.id.next[b.at] += int32(len(b.indexes))", with: "c.id.next[b.at] += int32(len(b.indexes)) - 1",
			promise: "No batch has the number of another (K-35).",
			tests:   tests("^TestProduceInOrder_OneBatch_O04$"),
		},
		{
			name: "inorder-id-outlives-no-answer", file: publish + "inorder.go",
			old: "if b.unknown || verdict == batchUnordered {", with: "if verdict == batchUnordered {",
			promise: "The number of a batch without an answer serves no other batch (K-35).",
			tests:   tests("^TestProduceInOrder_NumbersAfterFailures_O08_K35$"),
		},
		{
			name: "inorder-id-outlives-disorder", file: publish + "inorder.go",
			old: "if b.unknown || verdict == batchUnordered {", with: "if b.unknown {",
			promise: "After a broker has forgotten the producer, calls begin with another ID.",
			tests:   tests("^TestProduceInOrder_ForgottenProducer_K35$"),
		},
		{
			name: "inorder-id-outlives-the-context", file: publish + "inorder.go",
			old: "\t\t\tc.endID() // batches of the round may still be appended\n", with: "",
			promise: "The number of a batch that the call gave up serves no other batch (K-35).",
			tests:   tests("^TestProduceInOrder_ContextEnds_O15$"),
		},
		{
			name: "inorder-ended-id-serves", file: publish + "inorder_id.go",
			old: "p.ended[at] || p.next", with: "p.next",
			promise: "An ID that has ended for a partition numbers none of its batches (K-35).",
			tests:   tests("^TestProduceInOrder_NumbersAfterFailures_O08_K35$"),
		},
		{
			name: "inorder-numbers-run-out", file: publish + "inorder_id.go",
			old: " || p.next[at] > maxSequence", with: "",
			promise: "A new ID begins before the numbers are used up.",
			tests:   tests("^TestProduceInOrder_ForgottenProducer_K35$"),
		},
		{
			name: "inorder-unsent-ends-the-id", file: publish + "inorder.go",
			old: "b.unknown || !a.unsent && verdictOf", with: "b.unknown || verdictOf",
			promise: "A batch that was not sent keeps its number.",
			tests:   tests("^TestProduceInOrder_ManyWithoutLeader_O10$"),
		},
		{
			name: "inorder-sent-again-without-end", file: publish + "inorder.go",
			old: "b.attempts < attemptsOf(a) &&\n\t\ttime.Since", with: "time.Since",
			promise: "A batch is sent five times at most.",
			tests:   tests("^TestProduceInOrder_NumbersAfterFailures_O08_K35$"),
		},
		{
			name: "inorder-never-sent-again", file: publish + "inorder.go",
			old: "b.attempts < attemptsOf(a) &&", with: "false && b.attempts < attemptsOf(a) &&",
			promise: "A batch without an answer is sent again with its number.",
			tests:   tests("^TestProduceInOrder_NumbersAfterFailures_O08_K35$"),
		},
		{
			name: "inorder-calls-at-once", file: publish + "inorder.go",
			old: "turn: make(chan struct{}, 1)", with: "turn: make(chan struct{}, 9)",
			promise: "Calls go one after the other.",
			tests:   tests("^TestProduceInOrder_Concurrent_Closed$"),
		},
		{
			name: "inorder-copy-is-a-failure", file: publish + "inorder_verdict.go",
			old: "isAny(code, sarama.ErrNoError, sarama.ErrDuplicateSequenceNumber)", with: "isAny(code, sarama.ErrNoError)",
			promise: "A batch that an earlier attempt appended is acknowledged.",
			tests:   tests("^TestVerdictOf$"),
		},
		{
			name: "inorder-newer-code-is-final", file: publish + "inorder_verdict.go",
			old: "\t}\n\treturn batchUnknown\n}", with: "\t}\n\treturn batchRefused\n}",
			promise: "A code that is not known may mean that the batch was appended.",
			tests:   tests("^TestVerdictOf$"),
		},
		{
			name: "inorder-broken-connection-is-final", file: publish + "inorder_verdict.go",
			old: "case !errors.As(err, &code):\n\t\treturn batchUnknown", with: "case !errors.As(err, &code):\n\t\treturn batchRefused",
			promise: "A batch whose connection broke may have been appended.",
			tests:   tests("^TestVerdictOf$"),
		},
		{
			name: "inorder-disorder-is-unknown", file: publish + "inorder_verdict.go",
			old: "\t\treturn batchUnordered\n", with: "\t\treturn batchUnknown\n",
			promise: "A number that the broker does not expect ends the ID.",
			tests:   tests("^TestVerdictOf$"),
		},
		{
			name: "inorder-refusal-is-unknown", file: publish + "inorder_verdict.go",
			old: "sarama.ErrInvalidRecord, sarama.ErrPolicyViolation,", with: "sarama.ErrPolicyViolation,",
			promise: "A refused batch is not sent again.",
			tests:   tests("^TestVerdictOf$"),
		},
		{
			name: "inorder-no-block-is-a-success", file: publish + "inorder_send.go",
			old: "\t\t\ta.err = errNoAnswer\n", with: "",
			promise: "A batch that the response does not name is not acknowledged.",
			tests:   tests("^TestLeaderRequest_Answer$"),
		},
		{
			name: "inorder-code-is-lost", file: publish + "inorder_send.go",
			old: "if block.Err != sarama.ErrNoError {", with: "if false {",
			promise: "A batch that a broker refuses is not acknowledged.",
			tests:   tests("^TestLeaderRequest_Answer$"),
		},
		{
			name: "inorder-leaderless-topics-one-by-one", file: publish + "inorder_send.go",
			old: "if s.client.PartitionNotReadable(b.at.topic, b.at.id) {", with: "if false {",
			promise: "Partitions without a leader do not delay those with one (O-10).",
			tests:   tests("^TestProduceInOrder_Many"),
		},
		{
			name: "inorder-old-leader-again", file: publish + "inorder_send.go",
			old: "if b.attempts > 0 {", with: "if false {",
			promise: "Another attempt goes to the new leader.",
			tests:   tests("^TestProduceInOrder_LeaderMoves_O10$"),
		},
		{
			name: "inorder-waits-for-every-topic", file: publish + "inorder.go",
			old: "\t\tcase <-patience.C:\n\t\t\twaits = false\n", with: "",
			promise: "A topic without an answer does not delay the others (O-10).",
			tests:   tests("^TestProduceInOrder_TopicWithoutAnswer_O10$"),
		},
		{
			name: "inorder-waits-for-the-id", file: publish + "inorder.go",
			old: "\tcase <-patience.C:\n\t\treturn fmt", with: "\tcase <-make(chan int):\n\t\treturn fmt",
			promise: "A broker that does not give a producer ID delays a call for a moment.",
			tests:   tests("^TestProduceInOrder_NoProducerID_O10$"),
		},
		{
			name: "inorder-tries-a-partition-that-is-away", file: publish + "inorder.go",
			old: "case c.s.away != nil && c.s.away.holds(at):", with: "case false:",
			promise: "A partition that takes nothing fails its messages at once (O-10).",
			tests:   tests("^TestProduceInOrder_PartitionAway_O10$"),
		},
		{
			name: "inorder-silence-is-not-noted", file: publish + "inorder.go",
			old: "\t\t\tc.noteSilence(err)\n", with: "",
			promise: "A silent broker delays one call (O-10).",
			tests:   tests("^TestProduceInOrder_BrokerSilent_O10$"),
		},
		{
			name: "inorder-failure-is-not-noted", file: publish + "inorder.go",
			old: "\t\tif verdict == batchUnknown {\n\t\t\tc.noteAway(b)\n\t\t}\n", with: "",
			promise: "A partition that takes nothing delays one call (O-10).",
			tests:   tests("^TestProduceInOrder_KeylessFirst_O10$"),
		},
		{
			name: "inorder-keyless-without-leader", file: publish + "topics.go",
			old: "\treturn some\n", with: "\treturn all\n",
			promise: "Messages without a key go to partitions with a leader.",
			tests:   tests("^TestProduceInOrder_KeylessBesideLeaderless_O10$"),
		},
		{
			name: "inorder-past-the-interceptors", file: publish + "inorder.go",
			old: "case len(conf.Producer.Interceptors) > 0 || conf", with: "case conf",
			promise: "No message goes past the interceptors of a client.",
			tests:   tests("^TestProduceInOrder_Interceptors$"),
		},
	}
}
