// Package dynamostore is a store in a table of Amazon DynamoDB. There is no server to run, and
// acknowledged writes are durable. Use dynamostore if you run on DynamoDB anyway. Redis is
// faster, and for effects in a database a store in that database is safer. The package is a
// module of its own, so that other users do not fetch the AWS SDK.
//
// # Guarantees
//
// Those of [dedup.Store]. The end of a lease shows later than in other stores, see Leases. The
// package also implements [dedup.Looker], [dedup.ResultLimiter], [dedup.Checker] and
// [dedup.Operator]. Not implemented are [dedup.Lister], which would need an index or a scan of
// the table, and [dedup.Registrar].
//
//   - Each change of a key is one conditional write: atomic, and refused if the item has changed
//     since the read. All reads are consistent.
//   - The item has the token of the claim, and a refusal returns the item
//     (ReturnValuesOnConditionCheckFailure). So the store recognises a write that the SDK repeats
//     after a lost answer. Keep the retries of the SDK on.
//   - A completion that comes too late changes no item, with or without a result.
//   - Fences ([dedup.Answer.Fence]) rise for as long as the record lives. Fences begin anew
//     after the record has expired, or after [Store.Forget].
//   - An event that the store may have handled and forgotten is [dedup.TooOld], and is not
//     claimed. See Expiry.
//   - Many keys in one call are as many requests, some at a time ([Parallel]). BatchWriteItem has
//     no conditions, and TransactWriteItems would refuse all keys because of one.
//
// # Leases
//
// Conditions of DynamoDB cannot read a clock, and clocks of two hosts are never compared. So a
// store measures leases by the monotonic clock of the process. A lease has ended if the item
// stayed unchanged for the whole length of the lease. Each renewal changes the item. A store
// remembers the claims that were granted or answered with Busy, and the time when their state
// was first seen ([Watched] bounds the number). [dedup.Answer.Wait] is the rest of the lease.
//
// As a consequence, the event of a crashed worker is taken over, as Uncertain, one lease after
// another process first asked. A process that asks only once takes no claim over: ask again
// after Wait. All goroutines of a process share the observations of a store: use one Store for
// each table.
//
// # Schema
//
// Each event has one item. The partition key is the attribute key (S): [dedup.Key.String], or
// "sha256:" and a hash if that has more than 2,048 bytes. There is no sort key and no index.
// Zero attributes are left out:
//
//	version                     N  1; an item of another version is dedup.ErrUnavailable
//	state                       S  claimed, open (released, or waiting for a copy), done, dead
//	token                       B  of the last claim, 16 bytes
//	rev                         N  changes with each write
//	lease                       N  milliseconds; if claimed
//	doubt                       BOOL the claim, or the next one, is Uncertain
//	reopened                    BOOL an operator reopened it, and it was not claimed since
//	fence, failures, takeovers  N  counts
//	generation, retry           N  the position that it waits for, or that ran last
//	fingerprint                 B  16 bytes of a keyed hash, or 4 of a checksum
//	topic, partition, offset    S, N, N  of the first delivery
//	time                        N  of the first delivery, milliseconds since 1970
//	reason                      S  if dead
//	schema, result              N, B  if done
//	retention                   N  seconds
//	expires                     N  seconds since 1970: then the item counts as absent,
//	                               and DynamoDB may delete it
//	created, changed            N  milliseconds since 1970, by the clock of the writer
//
// Items with one colon in their key belong to no event. Their key is "born:" and a scope. The
// attribute born is the first use of that scope, in milliseconds since 1970. These items do not
// expire.
//
// [Migrate] creates the table. With other tools: a partition key named key of type S, and time to
// live on the attribute expires.
//
// # Expiry
//
// Retention runs on the wall clocks of the hosts. The attribute expires is the writer's time, plus
// the retention, plus a margin. The margin is a hundredth of the retention, at least a minute, at
// most an hour. The reader compares expires with the reader's own clock. If two clocks differ by
// less than the margin, no event is forgotten early. If two clocks differ by more, events are
// forgotten early by the rest. With retentions of a day that does no harm, as long as the clocks
// are right to minutes.
//
// For claims, expires lies a day further, and only DynamoDB deletes them, by its own clock. So
// different clocks never let another worker take over a held claim.
//
// DynamoDB deletes expired items hours or days late. Until then the store treats expired items
// as absent.
//
// An event without a record is [dedup.TooOld] if its origin's time and the birth of its scope both
// lie before
//
//	now - retention + margin
//
// Requests with AnyAge, and later copies that Idem has made, are exempt. Now is the time of the
// host that asks. The retention is that of the request. The margin is at most half of the
// retention. A longer retention takes effect for records written from then on. In the meantime,
// events that the shorter retention forgot may be Fresh.
//
// A process remembers the births of its scopes. Every ten minutes, a claim asks for the birth
// again, and gives it back to a table that was emptied meanwhile. So the answers to old events
// stay. An event younger than the horizon is Fresh again. An emptied table is a new store with new
// births if no process has given them back. For a new store, stop the consumers before you empty
// the table.
//
// If the table does not answer about a remembered birth, the remembered birth counts for ten more
// minutes. The claim that asked has waited for half a second at most, and at most for half of the
// time that its context had left.
//
// # Limits
//
// An item has at most 400 KB. A result may have 384 KiB ([Store.MaxResult]). A completion with a
// larger one fails with an error that does not match [dedup.ErrUnavailable]. Reasons are cut at
// [dedup.MaxReason] bytes.
//
// # Failure modes
//
// Each error of DynamoDB or the network, except a refused condition, is [dedup.ErrUnavailable] and
// wraps the cause. Causes are throttling (ThrottlingException,
// ProvisionedThroughputExceededException, RequestLimitExceeded), a missing table or right, an
// expired credential, a time-out, and an unreadable item. The SDK retries first, three times by
// default. If one key of a call fails, the call fails and answers no key. Only Renew goes on with
// the other keys ([dedup.PartError]). A repeated call recognises the writes for other keys by the
// token; otherwise those claims end with their lease.
//
//   - Global tables with eventually consistent replicas: the last write wins, so two regions may
//     both get Fresh. [Store.Check] refuses such a table unless all processes use one region
//     ([OneRegion]). After a failover to another region the last claims and completions may be
//     missing there, and their events are handled again. Strongly consistent global tables can
//     be used. Such tables do not delete expired items, which is a warning.
//   - DAX answers from a cache, is not consistent and cannot be used.
//   - A restored table is as old as the backup: events completed since are handled again.
//   - A hot key, or a partition above 1,000 writes a second, is throttled: calls with that key,
//     or a neighbouring one, fail. A process that has not read the birth of a scope yet also fails
//     all claims of the scope while the item of the birth is throttled.
//
// The consumer needs dynamodb:GetItem, PutItem and UpdateItem on the table, and DescribeTable and
// DescribeTimeToLive for [Store.Check]. [Store.Forget] also needs DeleteItem: do not grant that to
// consumers.
//
// # Cost per message
//
// A new event costs two writes: claim and completion. These are two round trips, and two write
// units if the item has at most 1 KB. Without a result an item has about 500 bytes. A duplicate
// costs one refused write, which is billed like a successful one. If most events are duplicates,
// call Look first, which is a consistent read. A renewal is a write. The birth of a scope is one
// write every ten minutes for each process, or one read if the process only looks. The keys of a
// call are sent [Parallel] at a time. Let the HTTP client keep as many connections:
//
//	http := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
//		t.MaxIdleConnsPerHost = 128
//	})
package dynamostore
