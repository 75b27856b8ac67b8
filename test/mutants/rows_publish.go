package main

// awayMutants are faults of the partitions that take no records, and of the messages that try them.
func awayMutants() []mutant {
	const publish = "consumer/internal/publish/"
	tests := func(run string) owner { return ownedBy("consumer/internal/publish", run) }
	return []mutant{
		{
			name: "publish-result-asks-the-client", file: publish + "sender.go",
			old: "s.topics.partitions(m.Topic)", with: "func() []int32 { all, _ := s.client.Partitions(m.Topic); return all }()",
			promise: "No result of a message waits for sarama's client.",
			tests:   tests("^TestProduceEach_ResultsWithoutPartitions_O10$"),
		},
		{
			name: "publish-away-is-not-noted", file: publish + "away.go",
			old: "\tanswered := err == nil || isTooLarge(err)", with: "\tanswered := err == nil || err != nil || isTooLarge(err)",
			promise: "A partition that takes nothing delays the other messages once, not in each call (O-10).",
			tests:   tests("^TestAway_Decide$"),
		},
		{
			name: "publish-refusal-means-away", file: publish + "away.go",
			old: "\tanswered := err == nil || isTooLarge(err) || isRefused(err) || isNoTopic(err)", with: "\tanswered := err == nil",
			promise: "A partition that refuses a message is not away.",
			tests:   tests("^TestAway_Decide$"),
		},
		{
			name: "publish-silence-is-not-noted", file: publish + "call.go",
			old: "\t\t\tc.s.away.noteSilence(ToSarama(c.msgs[i]), c.s.topics.partitions(topic))\n", with: "\t\t\t_ = topic\n",
			promise: "A silent broker delays the messages for others once (O-10).",
			tests:   tests("^TestProduceEach_BrokerSilent_O10$"),
		},
		{
			name: "publish-denied-topic-has-no-record", file: publish + "call.go",
			old: "if !errors.Is(topic, sarama.ErrTopicAuthorizationFailed) {", with: "if topic != nil {",
			promise: "No error says that a record is not in the log after an attempt without an answer (K-35).",
			tests:   tests("^TestProduceEach_DeniedAfterNoAnswer_K35$"),
		},
		{
			name: "publish-two-probes", file: publish + "away.go",
			old: "if a.alone || a.probes[at] ||", with: "if a.alone ||",
			promise: "One message at a time tries whether a partition is back.",
			tests:   tests("^TestAway_Decide$"),
		},
		{
			name: "publish-probes-without-bound", file: publish + "away.go",
			old: " || len(a.probes) >= maxProbes", with: "",
			promise: "The messages that the budget does not count have a bounded number.",
			tests:   tests("^TestAway_Decide$"),
		},
		{
			name: "publish-probe-never-ends", file: publish + "away.go",
			old: "\t\tdelete(a.probes, *probe)\n", with: "",
			promise: "After a failed probe the next message tries again.",
			tests:   tests("^TestAway_Decide$|^TestProduceEach_PartitionAway_O10$"),
		},
		{
			name: "publish-away-for-good", file: publish + "away.go",
			old: "\t\ta.remove(at)\n\t\treturn\n", with: "\t\treturn\n",
			promise: "A partition that is back gets all of its messages.",
			tests:   tests("^TestAway_Decide$|^TestProduceEach_PartitionAway_O10$"),
		},
		{
			name: "publish-away-is-never-forgotten", file: publish + "away.go",
			old: "now.Sub(tried) >= forgetAfter", with: "now.Before(tried)",
			promise: "A partition that is gone for good costs nothing after some minutes.",
			tests:   tests("^TestAway_Forgets$"),
		},
		{
			name: "publish-probe-is-forgotten", file: publish + "away.go",
			old: "!a.probes[at] && now.Sub", with: "now.Sub",
			promise: "A partition stays away while a probe is in flight.",
			tests:   tests("^TestAway_Forgets$"),
		},
		{
			name: "publish-away-costs-other-topics", file: publish + "held.go",
			old: "\tif len(a.byTopic[topic]) == 0 {", with: "\tif len(a.byTopic) == 0 {",
			promise: "A partition that is away costs the messages of other topics nothing.",
			tests:   tests("^TestAway_OtherTopics$"),
		},
		{
			name: "publish-held-messages-are-sent", file: publish + "held.go",
			old: "\t\t\theld[at] = append(held[at], i)", with: "\t\t\trest = append(rest, i)",
			promise: "One message alone tries a partition that is away.",
			tests:   tests("^TestProduceEach_PartitionAway_O10$"),
		},
		{
			name: "publish-held-messages-get-no-error", file: publish + "held.go",
			old: "\tfor _, i := range indexes {\n\t\th.errs", with: "\tfor _, i := range indexes[:0] {\n\t\th.errs",
			promise: "A message that is held back is not reported as acknowledged.",
			tests:   tests("^TestSendAlone_NoNewProbe_T04$|^TestProduceEach_PartitionAway_O10$"),
		},
		{
			name: "publish-waits-for-probes", file: publish + "held.go",
			old: "\t\th.over = h.timer.C\n", with: "",
			promise: "No call waits for a probe to the end.",
			tests:   tests("^TestProduceEach_PartitionAway_O10$"),
		},
		{
			name: "publish-unanswered-probe-is-a-success", file: publish + "held.go",
			old: "\t\th.errs[i] = fmt.Errorf(\"%w: %w\", errNoAnswer, errPartitionAway)", with: "\t\th.errs[i] = nil",
			promise: "A probe without an answer is not reported as acknowledged.",
			tests:   tests("^TestProduceEach_PartitionAway_O10$"),
		},
	}
}

// sendMutants are faults of the producer: the results and the verdict of a message, the bytes in
// flight, Close.
func sendMutants() []mutant {
	const publish = "consumer/internal/publish/"
	tests := func(run string) owner { return ownedBy("consumer/internal/publish", run) }
	budget := func(run string) owner { return ownedBy("internal/sendbudget", run) }
	return []mutant{
		{
			name: "publish-result-of-another", file: publish + "sender.go",
			old: "o.results <- result{o.index, s.verdict(m, err)}", with: "o.results <- result{o.index / 2, s.verdict(m, err)}",
			promise: "Each message has the result of its own record (O-08).",
			tests:   tests("^TestProduceEach_OwnResult_O08$"),
		},
		{
			name: "publish-error-is-lost", file: publish + "sender.go",
			old: "s.settle(e.Msg, e.Err)", with: "s.settle(e.Msg, nil)",
			promise: "A message that failed is not reported as acknowledged.",
			tests:   tests("^TestProduceEach_OwnResult_O08$"),
		},
		{
			name: "publish-result-keeps-its-bytes", file: publish + "sender.go",
			old: "\ts.budget.Give(o.weight)\n", with: "",
			promise: "A message with a result takes no bytes of the budget.",
			tests:   tests("^TestProduceEach_WhoIsToBlame_O10$|^TestProduceEach_PartitionAway_O10$"),
		},
		{
			name: "publish-unsent-keeps-its-bytes", file: publish + "call.go",
			old: "\t\t\tc.s.budget.Give(o.weight)\n", with: "",
			promise: "A message that is not sent takes no bytes of the budget.",
			tests:   tests("^TestProduceEach_BytesOfTheUnsent$"),
		},
		{
			name: "publish-takes-no-bytes", file: publish + "call.go",
			old: "err := c.s.budget.Take(ctx, o.weight, alone)", with: "var err error",
			promise: "What sarama holds is bounded (O-15).",
			tests:   tests("^TestProduceEach_BrokerAway_O15$|^TestProduceEach_NotAlone_T04$|^TestProduceEach_PartitionAway_O10$"),
		},
		{
			name: "publish-closed-one-sends", file: publish + "sender.go",
			old: "\tif s.closed {\n\t\treturn errClosed\n\t}\n", with: "",
			promise: "A closed producer sends nothing and does not panic.",
			tests:   tests("^TestProduceEach_ClosedMeanwhile$"),
		},
		{
			name: "publish-closed-one-begins-calls", file: publish + "sender.go",
			old: "\tif s.closed {\n\t\treturn nil, false\n\t}\n", with: "",
			promise: "After Close every message has an error that says so.",
			tests:   tests("^TestProduceEach_Closed$"),
		},
		{
			name: "publish-closed-one-starts", file: publish + "sender.go",
			old: "\tif s.closed {\n\t\treturn false\n\t}\n", with: "",
			promise: "After Close no goroutine begins.",
			tests:   tests("^TestProduceEach_ClosedMeanwhile$"),
		},
		{
			name: "publish-close-waits-for-sarama", file: publish + "sender.go",
			old: "\t\tclose(s.ending)\n", with: "",
			promise: "Close waits for no message that sarama has not taken (O-15).",
			tests:   tests("^TestOpenProducer_CloseWhileSending_O15$"),
		},
		{
			name: "publish-close-waits-for-brokers", file: publish + "producer.go",
			old: "\tcut := time.AfterFunc(closeWait, func() {\n\t\tp.conns.Cut()\n", with: "\tcut := time.AfterFunc(closeWait, func() {\n",
			promise: "Close cuts the connections of a silent broker (O-15).",
			tests:   tests("^TestOpenProducer_CloseBrokerSilent_O15$"),
		},
		{
			name: "publish-batch-condemns-its-messages", file: publish + "call.go",
			old:     "\tc.sendAlone(ctx, c.failed(all, isBatchVerdict))\n",
			with:    "\tfor _, i := range c.failed(all, isBatchVerdict) {\n\t\tc.classify(i)\n\t}\n",
			promise: "A message is not condemned for the others of its batch (T-04).",
			tests:   tests("^TestProduceEach_WhoIsToBlame_O10$"),
		},
		{
			name: "publish-halves-condemn", file: publish + "call.go",
			old:     "\t\t\tgroups = append(groups, bad[len(bad)/2:], bad[:len(bad)/2])\n",
			with:    "\t\t\tfor _, i := range bad {\n\t\t\t\tc.classify(i)\n\t\t\t}\n",
			promise: "A message that is refused in a batch is sent alone before it is condemned (T-04).",
			tests:   tests("^TestProduceEach_WhoIsToBlame_O10$"),
		},
		{
			name: "publish-alone-beside-others", file: publish + "call.go",
			old:     "\t\tfor _, i := range indexes {\n\t\t\tc.notAlone(i, err)\n\t\t}\n",
			with:    "\t\tfor _, i := range indexes {\n\t\t\tc.classify(i)\n\t\t}\n",
			promise: "A message is not condemned while others may share its batch (T-04).",
			tests:   tests("^TestProduceEach_NotAlone_T04$"),
		},
		{
			name: "publish-alone-beside-a-probe", file: publish + "call.go",
			old:     "\t\t\tc.notAlone(i, sendbudget.ErrOthersInFlight)\n",
			with:    "\t\t\t_, some = sendbudget.ErrOthersInFlight, append(some, i)\n",
			promise: "A message is not condemned while a probe may share its batch (T-04).",
			tests:   tests("^TestSendAlone_Probe_T04$"),
		},
		{
			name: "publish-alone-knows-no-keyless-probe", file: publish + "away.go",
			old: "\t\tif at.topic == m.Topic {\n\t\t\treturn true\n", with: "\t\tif at.topic == m.Topic {\n\t\t\treturn false\n",
			promise: "A message without a key may share the batch of any probe of its topic (T-04).",
			tests:   tests("^TestSendAlone_Probe_T04$"),
		},
		{
			name: "publish-probe-beside-one-alone", file: publish + "away.go",
			old: "if a.alone || a.probes[at]", with: "if a.probes[at]",
			promise: "No probe begins while a message is sent alone (T-04).",
			tests:   tests("^TestSendAlone_NoNewProbe_T04$"),
		},
		{
			name: "publish-probes-end-with-one-alone", file: publish + "call.go",
			old: "func() { a.setAlone(false) }", with: "func() {}",
			promise: "After a message was sent alone, partitions are tried again.",
			tests:   tests("^TestSendAlone_NoNewProbe_T04$"),
		},
		{
			name: "publish-alone-after-the-context", file: publish + "call.go",
			old: "\tif ctx.Err() != nil {\n\t\tc.set(group, errNotSent)\n", with: "\tif false {\n\t\tc.set(group, errNotSent)\n",
			promise: "After the end of the context no message is sent alone.",
			tests:   tests("^TestSendAlone_ContextOver$"),
		},
		{
			name: "publish-part-after-the-context", file: publish + "call.go",
			old: "\tif ctx.Err() != nil { // of an earlier part\n", with: "\tif false {\n",
			promise: "After the end of the context nothing is sent.",
			tests:   tests("^TestSendAlone_ContextOver$"),
		},
		{
			name: "publish-open-asks-on", file: publish + "producer.go",
			old:     "\tunended := context.AfterFunc(ctx, own.Cut)\n",
			with:    "\tunended := func() bool { return true }\n",
			promise: "The end of the context ends the question for a producer ID.",
			tests:   tests("^TestOpen_ContextEnds_O15$"),
		},
		{
			name: "publish-open-searches-on", file: publish + "producer.go",
			old:     "bootstrap.Find(ctx, brokers, sc, limits)",
			with:    "bootstrap.Find(context.WithoutCancel(ctx), brokers, sc, limits)",
			promise: "The end of the context ends the search for a broker.",
			tests:   tests("^TestOpen_ContextEnds_O15$"),
		},
		{
			name: "publish-old-epoch-sent-again", file: publish + "call.go",
			old:     "{ return isTooLarge(err) || isRefused(err) }",
			with:    "{ return isTooLarge(err) || isRefused(err) || errors.Is(err, sarama.ErrInvalidProducerEpoch) }",
			promise: "A batch with an old epoch is not sent again: an earlier attempt may be in the log.",
			tests:   tests("^TestProduceEach_OldEpoch_K35$"),
		},
		{
			name: "publish-refused-copy-is-sent-again", file: publish + "sender.go",
			old: "result{o.index, s.verdict(m, err)}", with: "result{o.index, err}",
			promise: "A batch that is refused after an attempt without an answer is not sent again.",
			tests:   tests("^TestProduceEach_RefusedAfterNoAnswer_K35$"),
		},
		{
			name: "publish-first-batch-is-a-copy", file: publish + "resends.go",
			old: "r.pause > moment && r.lookUp[at] > moment", with: "r.lookUp[at] > moment",
			promise: "A batch that was sent once has the verdict of the broker.",
			tests:   tests("^TestResends$"),
		},
		{
			name: "publish-attempts-excuse-others", file: publish + "resends.go",
			old: "r.pause > moment && r.lookUp[at] > moment", with: "r.pause > moment",
			promise: "Attempts for a partition say nothing about the messages of another.",
			tests:   tests("^Test(ProduceEach_RefusedBesideAttempts_K35|Resends)$"),
		},
		{
			name: "publish-time-too-old-is-sent", file: publish + "call.go",
			old: "c.errs[i] = s.unfit(m)", with: "c.errs[i] = s.tooLarge(m)",
			promise: "A time before 1970 is the fault of the message, and harms no other.",
			tests:   tests("^TestProduceEach_TimeTooOld_K35$"),
		},
		{
			name: "publish-behind-failed-without-partition", file: publish + "inorder.go",
			old: "ordered := onePartition(keys, m, at)", with: "ordered := failed[at] || onePartition(keys, m, at)",
			promise: "A key keeps the partition of a message that is not sent.",
			tests:   tests("^TestProduceInOrder_RoundRobinBehindFailed_O09$"),
		},
		{
			name: "publish-open-is-cut-late", file: publish + "producer.go",
			old: "\t\t\t<-over\n", with: "",
			promise: "An answer at the last moment leaves a producer with connections.",
			tests:   tests("^TestCutAfter_O15$"),
		},
		{
			name: "publish-own-connect-without-context", file: "consumer/producer_own.go",
			old: "\tcase <-ctx.Done():\n\t\treturn nil, fmt.Errorf(\"producer connects: %w\", context.Cause(ctx))\n", with: "",
			promise: "A dead letter waits for a connect no longer than its context.",
			tests:   ownedBy("consumer", "^TestOwnProducer_SilentBrokers_K35$"),
		},
		{
			name: "publish-moving-partition-is-no-topic", file: publish + "call.go",
			old: "case isAny(err, sarama.ErrTopicAuthorizationFailed, sarama.ErrInvalidTopic):", with: "case isNoTopic(err), errors.Is(err, sarama.ErrInvalidTopic):",
			promise: "A partition that a broker does not know is not a topic that is missing.",
			tests:   tests("^TestProduceEach_PartitionUnknownForAMoment_O10$"),
		},
		{
			name: "publish-topic-is-gone-unnoticed", file: publish + "call.go",
			old: "if errors.Is(a.err, idem.ErrNoTopic) {", with: "if false {",
			promise: "A topic that is deleted is told from brokers that are down.",
			tests:   tests("^TestProduceEach_TopicGoes_O10$"),
		},
		{
			name: "publish-missing-topic-is-the-brokers", file: publish + "topics.go",
			old: "case isNoTopic(a.err):", with: "case false:",
			promise: "A missing topic is told from brokers that are down.",
			tests:   tests("^TestProduceEach_WhoIsToBlame_O10$"),
		},
		{
			name: "publish-leaderless-topic-fails", file: publish + "topics.go",
			old: "\t\ta.err = nil\n", with: "",
			promise: "A partition without a leader does not fail the others of its topic.",
			tests:   tests("^TestProduceInOrder_SiblingWithoutLeader_O10$|^TestProduceInOrder_FirstLookLeaderless_O10$"),
		},
		{
			name: "publish-deleted-topic-keeps-its-partitions", file: publish + "topics.go",
			old: "\t\tdelete(t.known, a.topic)\n", with: "\t\t_ = t\n",
			promise: "The partitions of a deleted topic are forgotten.",
			tests:   tests("^TestProduceEach_ResultsOfADeletedTopic_O10$"),
		},
		{
			name: "publish-not-idempotent", file: publish + "settings.go",
			old: "\tp.Idempotent = true\n", with: "",
			promise: "A retry doubles no record (K-35).",
			tests:   tests("^TestProduceEach_ConnectionBreaks_O08_K35$|^TestConfigure_K35$"),
		},
		{
			name: "publish-leader-alone-acknowledges", file: publish + "settings.go",
			old: "\tp.RequiredAcks = sarama.WaitForAll\n", with: "\tp.RequiredAcks = sarama.WaitForLocal\n\tp.Idempotent = false\n",
			promise: "All in-sync replicas have an acknowledged record.",
			tests:   tests("^TestConfigure_K35$"),
		},
		{
			name: "publish-client-without-replicas", file: publish + "settings.go",
			old: "\tif sc.Producer.RequiredAcks != sarama.WaitForAll {", with: "\tif false {",
			promise: "A client that could lose an acknowledged record is refused.",
			tests:   tests("^TestConfigure_K35$"),
		},
		{
			name: "publish-client-without-results", file: publish + "settings.go",
			old: "\tif !sc.Producer.Return.Successes || !sc.Producer.Return.Errors {", with: "\tif !sc.Producer.Return.Successes {",
			promise: "A client that hides results is refused.",
			tests:   tests("^TestConfigure_K35$"),
		},
		{
			name: "budget-over-its-limit", file: "internal/sendbudget/budget.go",
			old: "b.used+n > b.limit", with: "b.used > b.limit",
			promise: "The bytes in flight stay below the limit (O-15).",
			tests:   budget("^TestBudget_"),
		},
		{
			name: "budget-large-one-waits-forever", file: "internal/sendbudget/budget.go",
			old: "b.used > 0 && b.used+n > b.limit", with: "b.used+n > b.limit",
			promise: "A record larger than the whole budget is sent alone.",
			tests:   budget("^TestBudget_"),
		},
		{
			name: "budget-lock-lets-others-in", file: "internal/sendbudget/budget.go",
			old: "!owner && (b.locked || ", with: "!owner && (",
			promise: "The lock keeps other calls out (T-04).",
			tests:   budget("^TestBudget_"),
		},
		{
			name: "budget-lock-does-not-wait", file: "internal/sendbudget/budget.go",
			old: "func() bool { return b.used == 0 }", with: "func() bool { return true }",
			promise: "The lock waits until no record is in flight (T-04).",
			tests:   budget("^TestBudget_"),
		},
		{
			name: "budget-failed-lock-stays", file: "internal/sendbudget/budget.go",
			old: "\t\tb.Unlock()\n\t\treturn err", with: "\t\treturn err",
			promise: "A lock that failed keeps no call out.",
			tests:   budget("^TestBudget_"),
		},
		{
			name: "budget-two-locks", file: "internal/sendbudget/budget.go",
			old: "\t\tif b.locked {\n\t\t\treturn false\n\t\t}\n", with: "",
			promise: "One call at a time has the lock.",
			tests:   budget("^TestBudget_"),
		},
	}
}
