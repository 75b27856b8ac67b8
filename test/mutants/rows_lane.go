package main

// laneMutants are faults of the lanes and their watermark.
func laneMutants() []mutant {
	lane := func(run string) owner { return ownedBy("lane", run) }
	return []mutant{
		{
			name: "lane-watermark-off-by-one", file: "lane/tracker.go",
			old: "t.next, t.at, t.moved, moved = d.offset+1, d.at, true, true", with: "t.next, t.at, t.moved, moved = d.offset, d.at, true, true",
			promise: "The watermark is the offset after the finished prefix.",
			tests:   lane("^TestTracker_AnyOrder_K01$"),
		},
		{
			name: "lane-watermark-skips-unfinished", file: "lane/tracker.go",
			old: "if !d.finished {\n\t\t\tbreak", with: "if !d.finished && t.first == seq {\n\t\t\tbreak",
			promise: "The watermark never passes an unfinished event (K-01).",
			tests:   lane("^TestTracker_AnyOrder_K01$"),
		},
		{
			name: "lane-sealed-moves", file: "lane/tracker.go",
			old: "if t.sealed || seq < t.first || seq >= t.begun {", with: "if seq < t.first || seq >= t.begun {",
			promise: "A late completion moves no offset of an ended assignment (K-39).",
			tests:   lane("^TestTracker_Sealed_K39$"),
		},
		{
			name: "lane-foreign-sequence", file: "lane/tracker.go",
			old: "seq < t.first || seq >= t.begun {", with: "seq >= t.begun {",
			promise: "A repeated completion finishes no other event in the same place of the ring.",
			tests:   lane("^TestTracker_RepeatedSequence_K01$"),
		},
		{
			name: "lane-ring-overrun", file: "lane/tracker.go",
			old: "t.begun-t.first >= uint64(len(t.ring))", with: "t.begun-t.first > uint64(len(t.ring))",
			promise: "A delivery never takes the place of an unfinished one.",
			tests:   lane("^TestTracker_"),
		},
		{
			name: "lane-two-lanes-one-key", file: "lane/queue.go",
			old: "if l.inFlight == 0 && !l.ready {", with: "if !l.ready {",
			promise: "Events of one key run in order, one at a time (rule 25).",
			tests:   lane("^TestPartition_Schedules_"),
		},
		{
			name: "lane-closed-queue-hands-out", file: "lane/queue.go",
			old: "\tif q.closed {\n\t\treturn mine\n\t}\n", with: "\tif q.closed && len(q.ready) == 0 {\n\t\treturn mine\n\t}\n",
			promise: "A closed partition begins no queued event (K-09, rule 13).",
			tests:   lane("^TestPartition_Close_Rule13$|^TestLanes_Close_"),
		},
		{
			name: "lane-give-back-out-of-order", file: "lane/queue.go",
			old: "for i := len(rest) - 1; i > 0; i-- {", with: "for i := 1; i < len(rest); i++ {",
			promise: "Events that a lane gives back keep the order of their key.",
			tests:   lane("^TestPartition_Schedules_|^TestLanes_|^TestQueue_"),
		},
	}
}

// runnerMutants are faults of the parts that all Kafka clients share: offsets and their commit.
func runnerMutants() []mutant {
	runner := func(run string) owner { return ownedBy("runner", run) }
	consumer := func(run string) owner { return ownedBy("consumer", run) }
	return []mutant{
		{
			name: "runner-lost-partition-is-marked", file: "runner/session.go",
			old: "if a.lost() == nil && s.mark(a) {", with: "if s.mark(a) {",
			promise: "A lost partition marks no offset (K-11).",
			tests:   runner("^TestConsume_K03_K11$"),
		},
		{
			name: "runner-end-marks-lost", file: "runner/session.go",
			old: "\tif lost == nil {\n\t\ts.mark(a)\n\t}", with: "\ts.mark(a)",
			promise: "The end of a lost partition marks no offset (K-11).",
			tests:   consumer("^TestHandler_Lost_K11$"),
		},
		{
			name: "runner-end-without-commit", file: "runner/session.go",
			old: "\t\ts.commitAtEnd(a, marked)\n", with: "",
			promise: "A partition is given back behind a commit (K-03).",
			tests:   consumer("^TestHandler_CommitsAtTheEnd_K03$|^TestHandler_CooperativeRevoke_K10$"),
		},
		{
			name: "runner-mark-before-close", file: "runner/session.go",
			old:     "\tfailed := a.lane.Err() // before Close, which ends in order\n\tleft := a.lane.Close(ctx, s.closing(a, lost))",
			with:    "\tfailed := a.lane.Err() // before Close, which ends in order\n\tvar left error\n\tdefer func() { left = a.lane.Close(ctx, s.closing(a, lost)) }()",
			promise: "A partition is drained before its last offset is marked.",
			tests:   runner("^TestConsume_"),
		},
		{
			name: "runner-assure-trusts-old-confirmation", file: "runner/commit_marks.go",
			old: "return ok && confirmed >= next", with: "return ok && confirmed >= 0",
			promise: "A stop waits until a broker has confirmed the last offset (K-03).",
			tests:   runner("^TestMarks_ConfirmsTheLastMark_K03$"),
		},
		{
			name: "runner-refused-commit-confirmed", file: "runner/commit_marks.go",
			old: "if refused[q] == nil {", with: "if refused != nil {",
			promise: "An offset that a broker refused is not confirmed.",
			tests:   runner("^TestConsume_Confirmed_K03$"),
		},
		{
			name: "runner-backoff-unbounded", file: "runner/backoff.go",
			old: "limit := min(minBackoff<<min(b.Tries, 10), most)", with: "limit := minBackoff << min(b.Tries, 10)",
			promise: "A pause between sessions is at most 10 s (K-18).",
			tests:   runner("^TestBackoff_Lengths_K18_K42$"),
		},
		{
			name: "runner-position-goes-back", file: "runner/position.go",
			old: "if next <= p.next {\n\t\treturn false\n\t}", with: "if next == p.next {\n\t\treturn false\n\t}",
			promise: "The position of a partition never goes back.",
			tests:   runner("^TestPosition_Advance$"),
		},
		{
			name: "runner-look-over-visible-record", file: "runner/position.go",
			old: "if p.visible > offset {", with: "if p.visible > offset+1 {",
			promise: "Markers are committed only if no record lies before them (K-17).",
			tests:   runner("^TestPosition_Look_K17$"),
		},
		{
			name: "runner-lost-offsets-of-a-new-topic", file: "runner/lost_offsets.go",
			old: "if p.Next > end {", with: "if false && p.Next > end {",
			promise: "A topic that was made anew begins at Config.Start, not beyond its end.",
			tests:   runner("^TestLostOffsets_K19$"),
		},
		{
			name: "runner-resume-at-the-furthest", file: "runner/lost_offsets.go",
			old: "(!ok || p.Next < was.Next)", with: "(!ok || p.Next > was.Next)",
			promise: "With several stores a partition resumes at the lowest recorded position.",
			tests:   runner("^TestLostOffsets_K19$"),
		},
		{
			name: "runner-reason-for-one-claim", file: "runner/serve.go",
			old: "ending := g.ownEnding()", with: "ending := g.TakeEnding()",
			promise: "All claims of a session that the group ended have the same reason to leave.",
			tests:   runner("^TestGroup_LeaveReason$"),
		},
		{
			name: "runner-reason-of-a-membership-before", file: "runner/serve.go",
			old: "\t_ = l.Group.TakeEnding() // of the membership before\n", with: "",
			promise: "A membership does not end for the reason of another one.",
			tests:   runner("^TestLife_ReasonOfAMembership$"),
		},
		{
			name: "runner-waits-for-deleted-topic", file: "runner/life.go",
			old: "\towned.Go(func() { topics.suspectDeleted(ctx) })\n", with: "",
			promise: "A deleted topic is reported if the client only waits for it (K-27).",
			tests:   runner("^TestLife_DeletedTopic_K27$"),
		},
		{
			name: "runner-joins-for-deleted-topic", file: "runner/serve.go",
			old: "Subscription(ctx, troubled)", with: "Subscription(ctx, false && troubled)",
			promise: "A member that comes back does not subscribe to a deleted topic (K-27).",
			tests:   runner("^TestLife_DeletedTopic_K27$"),
		},
		{
			name: "kafkagoidem-keeps-deleted-topic", file: "adapter/kafkagoidem/member.go",
			old: "\towned.Go(m.watchTopics)\n", with: "",
			promise: "A deleted topic keeps no member from consuming the others (K-27).",
			tests:   ownedBy("adapter/kafkagoidem", "^TestKfake_DeletedTopic_K27$"),
		},
		{
			name: "lane-room-is-swallowed", file: "lane/lane.go",
			old: "\t\t\twoken = true\n", with: "",
			promise: "Room that a Push leaves unused wakes another Push.",
			tests:   ownedBy("lane", "^TestPush_PassesTheSignalOn$"),
		},
		{
			name: "kafkagoidem-growth-unseen", file: "adapter/kafkagoidem/member.go",
			old: "if len(ids) != len(m.known[topic]) {", with: "if len(ids) < len(m.known[topic]) {",
			promise: "Partitions that are added at the begin of a membership are consumed (K-29).",
			tests:   ownedBy("adapter/kafkagoidem", "^TestGrowth_K29$"),
		},
		{
			name: "kafkagoidem-commits-once", file: "adapter/kafkagoidem/session.go",
			old: "NotAvailable, kafka.NotCoordinatorForGroup)", with: "NotAvailable)",
			promise: "A coordinator that moves does not cost the last commit of a generation (K-24).",
			tests:   ownedBy("adapter/kafkagoidem", "^TestCoordinatorMoves_K24$"),
		},
		{
			name: "kafkagoidem-takes-the-producers-time", file: "adapter/kafkagoidem/fetch.go",
			old: "timed := !isData || data.Attributes&logAppendTime == 0", with: "timed := !isData || data.Attributes != logAppendTime",
			promise: "With LogAppendTime no time of a producer counts (rule 8).",
			tests:   ownedBy("adapter/kafkagoidem", "^TestRead_LogAppendTime_Rule8$"),
		},
		{
			name: "kafkagoidem-slot-is-free-at-once", file: "adapter/kafkagoidem/slots.go",
			old: "\t\tdefer func() { <-slot }()\n", with: "\t\t<-slot\n",
			promise: "Attempts that ran out of time do not add copies of a dead letter.",
			tests:   ownedBy("adapter/kafkagoidem", "^TestSlots_OneRequestAtATime$"),
		},
		{
			name: "kafkagoidem-sends-for-a-call-that-is-over", file: "adapter/kafkagoidem/slots.go",
			old: "\tif err := s.unsent(ctx, p); err != nil {", with: "\tif err := s.unsent(ctx, p); err != nil && slot == nil {",
			promise: "A record is not sent for a call that has ended, whose caller sends it again.",
			tests:   ownedBy("adapter/kafkagoidem", "^TestSlots_NoTime$"),
		},
		{
			name: "kgoidem-leaderless-ends-the-session", file: "adapter/kgoidem/member.go",
			old: "\t\t<-ctx.Done()\n\t\treturn nil, ctx.Err()\n", with: "\t\treturn nil, err\n",
			promise: "Handlers have their grace while a new partition waits for its leader (K-18).",
			tests:   ownedBy("adapter/kgoidem", "^TestLeaderless_Stop_K18$"),
		},
		{
			name: "runner-confirms-unseen-marks", file: "runner/commit_marks.go",
			old:     "\tm.sess.Mark(p, next)\n\tm.marked[p] = next\n",
			with:    "\tm.marked[p] = next\n\tm.mu.Unlock()\n\tm.sess.Mark(p, next)\n\tm.mu.Lock()\n",
			promise: "A direct commit is not followed by an older one of the client (K-03).",
			tests:   runner("^TestMarks_Unseen_K03$"),
		},
		{
			name: "runner-older-commit-goes-on", file: "runner/commit_turn.go",
			old: "\tif t.end != nil {\n\t\tt.end(errDirectFirst)\n\t}\n", with: "",
			promise: "A commit under way does not keep the one of a stop waiting (K-03).",
			tests:   runner("^TestCommitTurn_Direct_K03$"),
		},
		{
			name: "runner-ended-commit-is-left-out", file: "runner/commit_turn.go",
			old: "errDirectFirst) {\n\t\t\tcontinue\n", with: "errDirectFirst) {\n\t\t\treturn nil\n",
			promise: "A commit that gives way to a direct one is made after it (K-03).",
			tests:   runner("^TestCommitTurn_Direct_K03$"),
		},
		{
			name: "runner-commit-does-not-give-way", file: "runner/commit_turn.go",
			old: "if t.directs == 0 {\n\t\t\town, end", with: "if t.directs >= 0 {\n\t\t\town, end",
			promise: "No other commit begins while a direct one waits (K-03).",
			tests:   runner("^TestCommitTurn_GivesWay_K03$"),
		},
		{
			name: "kgoidem-falls-back", file: "adapter/kgoidem/prepare.go",
			old: "key == int16(kmsg.JoinGroup)", with: "key == int16(kmsg.JoinGroup)+100",
			promise: "The protocol NextGeneration is not replaced by another one without a word (K-37).",
			tests:   ownedBy("adapter/kgoidem", "^TestRefusedProtocol_K37$"),
		},
		{
			name: "kgoidem-cut-log-moves-forward", file: "adapter/kgoidem/session.go",
			old: "if known, ok := s.known[p]; ok && at < known {\n\t\ts.marks[p] = at\n\t}", with: "s.marks[p] = at",
			promise: "A cut of the log commits no event that is not settled (K-32).",
			tests:   ownedBy("adapter/kgoidem", "^TestMarksOfACutLog_K32$"),
		},
		{
			name: "kgoidem-cut-log-replaces-marks", file: "adapter/kgoidem/session.go",
			old: "return min(next, cut), noEpoch", with: "return cut, noEpoch",
			promise: "A commit after a cut of the log stays below the first unfinished event (K-32).",
			tests:   ownedBy("adapter/kgoidem", "^TestDataLossBehindTheWatermark_K32$"),
		},
		{
			name: "kgoidem-commits-no-epoch", file: "adapter/kgoidem/session.go",
			old: "return next, read.below(next)", with: "return next, noEpoch",
			promise: "A later start finds that the log was cut below the committed offset (K-32).",
			tests:   ownedBy("adapter/kgoidem", "^TestCutOfAnotherPartition_K32$"),
		},
		{
			name: "kgoidem-epoch-of-an-older-record", file: "adapter/kgoidem/epochs.go",
			old: "r.first < next && next <= r.last+1", with: "r.first < next",
			promise: "An offset is committed with the epoch of the record just before it (K-32).",
			tests:   ownedBy("adapter/kgoidem", "^TestCommittedEpoch_K32$"),
		},
		{
			name: "kgoidem-trusts-foreign-epochs", file: "adapter/kgoidem/epochs.go",
			old: "if !m.stamps[stamp(p, at, committed.Epoch)] {", with: "if false {",
			promise: "A commit of another client does not look like a cut of the log (K-32).",
			tests:   ownedBy("adapter/kgoidem", "^TestMixed_OldEpoch_K32$"),
		},
		{
			name: "kgoidem-finds-a-cut-for-ever", file: "adapter/kgoidem/member.go",
			old: "s.passOver(p)", with: "_ = p",
			promise: "With LatestOnGap the runner goes on after a cut of the log (K-32).",
			tests:   ownedBy("adapter/kgoidem", "^TestCutWhileAway_K32$/^cooperative,latest$"),
		},
		{
			name: "kgoidem-older-commit-follows", file: "adapter/kgoidem/session.go",
			old:     "err = s.turn.Directly(ctx, func() (err error) {\n\t\trefused, err = s.send(ctx, offsets)\n\t\treturn err\n\t})\n\treturn refused, err",
			with:    "return s.send(ctx, offsets)",
			promise: "No older commit follows the one of a stop (K-03).",
			tests:   ownedBy("adapter/kgoidem", "^TestOlderCommit_K03$"),
		},
	}
}

// beginMutants are faults of where partitions begin, and of what a client must not conclude from the
// brokers' answers.
func beginMutants() []mutant {
	runner := func(run string) owner { return ownedBy("runner", run) }
	consumer := func(run string) owner { return ownedBy("consumer", run) }
	return []mutant{
		{
			name: "runner-gap-skips-copies", file: "runner/config.go",
			old:     "if c.OnGap == LatestOnGap && IsRetry(topic, c.Group) {",
			with:    "if false {",
			promise: "No policy for gaps skips a copy in a retry topic (K-17).",
			tests:   runner("^TestGapPolicyOf_K17$|^TestOffsetCheck_K17_K19$"),
		},
		{
			name: "kgoidem-cut-policy-as-configured", file: "adapter/kgoidem/member.go",
			old:     "policy := m.r.cfg.GapPolicyOf(gap.Topic)",
			with:    "policy := m.r.cfg.OnGap",
			promise: "A cut of a retry topic skips no copy (K-32).",
			tests:   ownedBy("adapter/kgoidem", "^TestCutOfRetryTopic_K32$"),
		},
		{
			name: "runner-newest-begins-uncommitted", file: "runner/offset_check.go",
			old: "if g.cfg.Start != Newest {", with: "if g.cfg.Start == Newest {",
			promise: "A group that begins at the newest record skips no later one (K-29).",
			tests:   consumer("^TestKfake_NewestLosesNoRecord_K29$"),
		},
		{
			name: "runner-newest-instead-of-recorded", file: "runner/offset_check.go",
			old: "delete(fresh, m.TopicPartition)", with: "_ = m",
			promise: "A recorded position goes before the newest record (K-19).",
			tests:   runner("^TestOffsetCheck_Newest_K29$"),
		},
		{
			name: "runner-chosen-place-uncommitted", file: "runner/group.go",
			old: "\ts.commitBeginning(a)\n", with: "",
			promise: "A chosen place is committed before its first record runs (K-29).",
			tests:   runner("^TestConsume_ChosenPlace_K29$"),
		},
		{
			name: "runner-chosen-place-unconfirmed-at-stop", file: "runner/session.go",
			old: "\t\tif !ok {\n\t\t\treturn\n\t\t}\n\t\tword", with: "\t\tif !ok || ok {\n\t\t\treturn\n\t\t}\n\t\tword",
			promise: "A stop is not safe before a chosen place is confirmed (K-29).",
			tests:   runner("^TestConsume_ChosenPlaceIsConfirmed_K29$"),
		},
		{
			name: "runner-unconfirmed-place-is-recorded", file: "runner/assignment.go",
			old: "if a.unsafe.Load() || !marked", with: "if !marked",
			promise: "A store gets no position that no broker has confirmed (K-19).",
			tests:   runner("^TestConsume_ChosenPlaceIsConfirmed_K29$"),
		},
		{
			name: "runner-first-mark-is-recorded", file: "runner/session.go",
			old: "if claim.InitialOffset() < 0 && s", with: "if claim.InitialOffset() > 0 && s",
			promise: "A store gets no position of a group before its first commit (K-19).",
			tests:   runner("^TestProgress_NoCommittedOffset_K19$"),
		},
		{
			name: "runner-missing-offset-counts-as-committed", file: "runner/session_progress.go",
			old: "if _, ok := committed[a.TopicPartition]; ok {", with: "if _, ok := committed[a.TopicPartition]; ok || !ok {",
			promise: "A partition that the answer leaves out has no committed offset (K-19).",
			tests:   runner("^TestProgress_NoCommittedOffset_K19$"),
		},
		{
			name: "consumer-asks-no-committed-offset", file: "consumer/membership.go",
			old: "h.g.Hooks.Committed = func(", with: "_ = func(",
			promise: "A store gets no position of a group before its first commit (K-19).",
			tests:   consumer("^TestKfake_NoCommitSucceeded_K19$"),
		},
		{
			name: "runner-asks-no-committed-offset", file: "runner/serve.go",
			old: "l.Group.Hooks.Oldest, l.Group.Hooks.Committed = l.oldest, l.committed", with: "l.Group.Hooks.Oldest, _ = l.oldest, l.committed",
			promise: "A store gets no position of a group before its first commit (K-19).",
			tests:   ownedBy("adapter/kgoidem", "^TestNotCommitted_K05$"),
		},
		{
			name: "runner-offset-zero-counts-as-confirmed", file: "runner/commit_marks.go",
			old: "return ok && confirmed >= next", with: "return (ok || !ok) && confirmed >= next",
			promise: "Offset zero needs a confirmation too (K-29).",
			tests:   runner("^TestConsume_ChosenPlaceIsConfirmed_K29$"),
		},
		{
			name: "consumer-begins-at-refused-offsets", file: "consumer/offsets.go",
			old: "\tif err != nil {\n\t\treturn fmt.Errorf(\"commit where partitions begin", with: "\tif err != nil && false {\n\t\treturn fmt.Errorf(\"commit where partitions begin",
			promise: "A session does not begin at offsets that the coordinator refuses (K-29).",
			tests:   consumer("^TestMoveOffsets_K29$"),
		},
		{
			name: "runner-joins-with-old-subscription", file: "runner/group.go",
			old: "errors.Is(ending, ErrTopicBack) {", with: "false && errors.Is(ending, ErrTopicBack) {",
			promise: "A topic that exists again while the member joins is read (K-27).",
			tests:   consumer("^TestMembership_TopicWhileJoining_K27$"),
		},
		{
			name: "consumer-added-partition-unprepared", file: "consumer/handler.go",
			old: "|| h.added(ctx, claim)\n", with: "|| h.added(ctx, claim) || true\n",
			promise: "A partition that a cooperative rebalance adds is prepared too (K-29).",
			tests:   consumer("^TestKfake_AddedPartition_K29$"),
		},
		{
			name: "consumer-leader-is-no-reason-to-join", file: "consumer/leaders.go",
			old: "\tif onlyLeaders(err) {", with: "\tif false && onlyLeaders(err) {",
			promise: "A partition without a leader does not stop the others (K-18).",
			tests:   consumer("^TestKfake_PartitionWithoutLeader_K18$"),
		},
		{
			name: "consumer-prepares-without-leader", file: "consumer/leaders.go",
			old: "if client.PartitionNotReadable(topic, id) {", with: "if false && client.PartitionNotReadable(topic, id) {",
			promise: "A partition without a leader does not stop the others (K-18).",
			tests:   consumer("^TestKfake_PartitionWithoutLeader_K18$"),
		},
		{
			name: "consumer-unprepared-claim-begins", file: "consumer/handler.go",
			old: "if ready, err = h.prepare(sess); err != nil {", with: "if _, err = h.prepare(sess); err != nil {",
			promise: "A partition that had no leader is prepared before it begins (K-29).",
			tests:   consumer("^TestKfake_PartitionWithoutLeader_K18$"),
		},
		{
			name: "consumer-prepared-copies-unasked", file: "consumer/leaders.go",
			old: "if slices.Contains(o.prepares[p.Topic], p.Partition) {", with: "if false && slices.Contains(o.prepares[p.Topic], p.Partition) {",
			promise: "With Newest no copy is skipped when a retry topic loses a leader (K-29).",
			tests:   consumer("^TestLedOffsets_K29$"),
		},
		{
			name: "consumer-learns-from-deleted-records", file: "consumer/ends.go",
			old: "\t\ttail.Forget()\n", with: "\t\treturn runner.Look{Clear: offset + 1}, nil\n",
			promise: "No offset behind waiting copies is committed when Kafka deletes them (K-17).",
			tests:   consumer("^TestKfake_DeletedWhileWaiting_K17$"),
		},
		{
			name: "consumer-question-before-zstd", file: "consumer/ends.go",
			old: "r.Version = 10", with: "r.Version = 9",
			promise: "A partition with zstd can be caught up (rule 8).",
			tests:   consumer("^TestKfake_Zstd_Rule8$"),
		},
		{
			name: "runner-pump-leaves-a-pause", file: "runner/pump.go",
			old: "resumes = p.pause() || resumes", with: "p.pause()",
			promise: "A partition that the pump has paused is fetched again (T-05).",
			tests:   consumer("^TestHandler_ProgramPauses_T05$"),
		},
		{
			name: "runner-looks-for-needed-topics-only", file: "runner/topic_watch.go",
			old: "if w.list.complete() {\n\t\t\t\tcontinue", with: "if len(w.list.Missing()) == 0 {\n\t\t\t\tcontinue",
			promise: "A topic for replays is read soon after it is created.",
			tests:   runner("^TestTopicWatch_Opened$"),
		},
		{
			name: "runner-silence-trusts-the-seen-end", file: "runner/silence.go",
			old: "if !waits {", with: "if waits = false; !waits {",
			promise: "A dead fetch of a backlog is found while no record is written (K-15).",
			tests:   consumer("^TestKfake_SilenceWithBacklog_K15$"),
		},
		{
			name: "consumer-reason-of-a-session-before", file: "consumer/membership.go",
			old: "\t\t_ = m.handler.g.TakeEnding() // of the session before\n", with: "",
			promise: "A stale reason does not hide why a session ended (K-15).",
			tests:   consumer("^TestMembership_ReasonOfASession_K15$"),
		},
		{
			name: "runner-stop-reports-old-handlers", file: "runner/session.go",
			old: "if s.g.stops() { // earlier", with: "if true { // earlier",
			promise: "A stop reports no handler that has ended long ago.",
			tests:   runner("^TestConsume_Abandoned_Rule56$"),
		},
	}
}

// watermillMutants are faults of watermillidem.
func watermillMutants() []mutant {
	tests := func(run string) owner { return ownedBy("adapter/watermillidem", run) }
	return []mutant{
		{
			name: "watermill-open-message-forgotten", file: "adapter/watermillidem/settler.go",
			old: "u.ctx != nil && u.ctx.Err() != nil && u.offset", with: "u.ctx != nil && u.offset",
			promise: "An unsettled message that may come again holds the progress back (rule 8).",
			tests:   tests("^TestProgress_Unsettled_Rule8$"),
		},
		{
			name: "watermill-gone-message-remembered", file: "adapter/watermillidem/settler.go",
			old: "assigned := !known || last.gone(m.Offset)", with: "assigned := !known || !known && last.gone(m.Offset)",
			promise: "An unsettled message that is gone does not stop the progress (rule 8).",
			tests:   tests("^TestProgress_Unsettled_Rule8$"),
		},
		{
			name: "watermill-wait-outlives-its-message", file: "adapter/watermillidem/collector.go",
			old: "context.WithCancelCause(e.ctx)", with: "context.WithCancelCause(context.WithoutCancel(e.ctx))",
			promise: "A message that its subscriber has given up runs no handler later (K-11).",
			tests:   tests("^TestCollector_WaitEndsWithTheMessage_K11$"),
		},
	}
}
