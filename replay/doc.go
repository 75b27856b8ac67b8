// Package replay runs the records of a window through the handlers of a group again, beside the
// live group. A window is a range of offsets of each partition, or a range of time.
//
//	r, err := replay.New(liveConfig, router, replay.Config{
//		Window: replay.Between(from, to), Scope: replay.OwnScope("fix-prices"), Rate: 500,
//	})
//	plan, err := r.Plan(ctx)   // show plan, ask
//	result, err := r.Run(ctx, plan, replay.NewBar(os.Stderr).Update)
//	err = r.Close()
//
// # The live group
//
// A replay joins no group and commits no offset. It records no progress in a store, so it moves no
// retention. It reads partitions by offset, and needs rights on topics only, not on the group. The
// live group may run meanwhile.
//
// # Scopes
//
// With [OwnScope] every event of the window runs once for this replay, although the live scope has
// it done. A replay that was interrupted continues under the same name, and runs no event twice.
// With [SameScope] events that the group has handled are duplicates. The other events run: those
// that the store has forgotten or never had. An event that the live group is handling at the moment
// is waited for.
//
// # Failures
//
// A replay retries in place only, as the retry policy of the handler allows. Handlers with
// RetryTopics or KeyOrdered lose their delayed retries for the replay, because a retry topic would
// give the copies to the live group. An event that is given up is in [Result].Failed, and in a
// dead-letter topic if there is one. After [Config].MaxFailed of them the replay stops.
//
// # Limits
//
// Under an own scope the handlers run a second time. An effect that carries the event ID, such as a
// row with a unique column, meets the first one. Event.IdempotencyKey is the same as in the first
// run, so an outside API that keeps the key answers as before. The IDs of emitted events differ,
// because the scope is part of them, so their consumers handle them again. Read docs/replay.md
// before the first replay.
package replay
