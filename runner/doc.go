// Package runner has the tasks of a consumer of a group besides fetching and committing, for any
// Kafka client. These are checks of stores, topics and offsets at the start, the way of records
// into lanes, marks and commits, progress, stalls, and probes. Package consumer is a runner on
// sarama.
//
// Package runner imports no Kafka client. A runner on a client implements [Client], [Cluster],
// [Claim] and [Session], and classifies the errors of the client with a [Classify]. Its claims
// embed a [Position]. [Life.Run] with [Life.Serve] then does all steps below at the start and the
// stop, joins again after a [ComeBack], and sets the [Hooks].
//
// Package consumer calls the steps itself in [Life.Run], and implements [Admin], [Offsets] and
// [EndAsker]. The reason is that sarama needs a new client for each membership, and that client
// asks for the topics.
//
// # The life of a runner
//
// At the start:
//   - Check the settings with [Config.Validate], and create a [Group] and a [Life].
//   - Let [StoreStart.Check] wait for the stores.
//   - Connect, and let [TopicSetup.Ensure] find and create topics. [Retrier.Wait] waits between two
//     tries, and returns the errors that end the runner.
//   - Let [RegisterGroup] compare the scope with the record of the stores.
//   - Subscribe to the topics of [TopicWatch.Subscription], and run [TopicWatch.Run] and
//     [SilenceWatch.Run] ([Life.Watch]).
//
// In each session:
//   - Commit the offsets of [OffsetCheck.Check], and with [Newest] those of [RetryBeginnings].
//     [Life.Places] does both for clients that take the offset where a partition begins. Mark a
//     Chosen place before [Consume], which commits the mark before it handles a record.
//   - Call [Retrier.Serving] and [Group.Begin], [Consume] in a goroutine for each claim, and
//     [Group.End] after the last one.
//   - Afterwards [Group.Err] and [Retrier.Fatal] of [Group.Cause] report whether the runner must
//     end. [Group.TakeEnding] reports whether the group ended the session itself
//     ([Group.LeaveReason]).
//
// At the stop, end the context of the session with [idem.ErrStopping]. [Group.Released] reports
// that all handlers have ended and committed, after [Config.EndWait] and [CommitWait] at the
// latest. Then leave the group, and call [Group.Close] and [Group.AtStop].
package runner
