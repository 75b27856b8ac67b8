// Package dynamostore is a store in a table of Amazon DynamoDB. There is no server to run, and nothing that is acknowledged
// is lost. Use it where DynamoDB is there anyway; Redis is faster, and effects in a database are safer with a store in that
// database. It is a module of its own, so that nobody else has to fetch the AWS SDK.
//
// # Guarantees
//
// All of [dedup.Store]; the end of a lease is seen later than elsewhere, see Leases. The package also implements
// [dedup.Looker], [dedup.ResultLimiter], [dedup.Checker] and [dedup.Operator]. It has no
// [dedup.Lister], which would need an index or a scan of the table, and no [dedup.Registrar].
//
//   - Each change of a key is one conditional write: atomic, refused if the item is not what it was when it was decided. All
//     reads are consistent ones.
//   - The token of the claim is in the item, and a refusal says what the item is (ReturnValuesOnConditionCheckFailure): a
//     write whose answer was lost and that the SDK repeats is recognised. Keep its retries on.
//   - A completion that comes too late changes nothing, whether there is a result or not.
//   - Fences ([dedup.Answer.Fence]) rise for as long as the record lives; they begin anew when it has expired, or a person
//     forgot it.
//   - An event that may have been handled and forgotten is [dedup.TooOld], and is not claimed by asking. See Expiry.
//   - Many keys in one call are as many requests, some at a time ([Parallel]): BatchWriteItem knows no conditions, and
//     TransactWriteItems would refuse all for the sake of one.
//
// # Leases
//
// DynamoDB has no clock that a condition could ask, and the clocks of two hosts are never compared (P-10, R-18). So a lease
// is over when the store that asks has seen the item unchanged for the whole length of the lease, by the monotonic clock of its
// process. Each renewal changes the item. A store remembers since when it has seen each claim that its callers were told is Busy,
// and those that it granted itself ([Watched] bounds how many); [dedup.Answer.Wait] is what is left to be watched.
//
// What that means: the event of a worker that died is taken over, as Uncertain, one lease after another process first asked
// for it, not one lease after the worker's last word. A process that asks once and never again takes nothing over; ask
// again after Wait. All goroutines of a process share what one of them has seen: use one Store for each table.
//
// # Schema
//
// One item per event. The partition key is the attribute key (S): [dedup.Key.String], or "sha256:" and a hash of it where it
// has more than 2,048 bytes; there is no sort key and no index. The other attributes, left out where they are zero:
//
//	version                     N  1. An item of another version is never answered from, it is dedup.ErrUnavailable (rule 35)
//	state                       S  claimed, open (released, or waiting for a later copy), done, dead
//	token                       B  of the last claim, 16 bytes
//	rev                         N  changes with each write
//	lease                       N  milliseconds; if claimed
//	doubt                       BOOL the claim, or the next one, is Uncertain
//	reopened                    BOOL a person reopened it, and nobody has claimed it yet
//	fence, failures, takeovers  N  counts
//	generation, retry           N  the position it waits for, or that ran last
//	fingerprint                 B  16 bytes of a keyed hash, or 4 of a checksum
//	topic, partition, offset, time  of the first delivery: S, N, N, N milliseconds since 1970
//	reason                      S  if dead
//	schema, result              N, B  if done
//	retention                   N  seconds
//	expires                     N  seconds since 1970: from when the item counts as absent, and DynamoDB may delete it
//	created, changed            N  milliseconds since 1970, by the clock of who wrote
//
// Items with one colon in their key are about no event: "born:" and a scope, with the attribute born, says when the store
// first heard of that scope, in milliseconds since 1970. They have no expiry.
//
// [Migrate] creates the table. With other tools: a partition key named key of type S, time to live on the attribute expires.
//
// # Expiry
//
// Retention is by the wall clocks of the hosts: expires is the writer's time, the retention and a margin (a hundredth of
// the retention, at least a minute, at most an hour), and the reader compares it with his own. Hosts whose clocks differ by less than
// the margin never forget early; by more, they forget that much early. With retentions of a day that does no harm, as long as clocks
// are right to minutes. Claims are not forgotten so: expires lies a day further for them, and only DynamoDB, which deletes by its own
// clock, ever makes a claim vanish. So no difference of clocks lets a claim be taken over while it is held.
//
// DynamoDB deletes what has expired hours or days late. Until then the store takes it for absent (H-22).
//
// An event without a record is [dedup.TooOld] if its origin's time and the birth of its scope both lie before
//
//	now - retention + margin
//
// (rule 8), where now is the time of the host that asks, the retention is that of the request and the margin is at most half of
// it, and neither AnyAge is set nor is it a later copy that Idem made. A retention that is made longer takes effect for records
// written from then on, so for one retention more, events may be Fresh that the shorter one forgot. A table that was emptied is a new
// store.
//
// # Limits
//
// An item has at most 400 KB. A result may have 384 KiB ([Store.MaxResult]); a completion with a larger one is refused
// with an error that is not [dedup.ErrUnavailable]. Reasons are cut at [dedup.MaxReason] bytes.
//
// # Failure modes
//
// Whatever DynamoDB answers but an item or the refusal of a condition, and whatever happens on the way to it, is
// [dedup.ErrUnavailable], wrapping the cause: throttling in all its forms (ThrottlingException,
// ProvisionedThroughputExceededException, RequestLimitExceeded), a table or a right that is missing, an expired
// credential, a time-out, an item that cannot be read. The SDK retries before that, three times by default. If one key of
// a call fails, the call fails and no key of it is answered; what was written for others is recognised by its token when the call is
// repeated, and ends with its lease if it is not.
//
//   - Global tables whose replicas are eventually consistent: the last write wins, so two regions may both be told Fresh.
//     [Store.Check] refuses them unless all processes use one region ([OneRegion]). After a failover to another region the last
//     claims and completions may be missing there, and their events are handled again. Strongly consistent global tables are fit; they
//     delete nothing by themselves, which is a warning.
//   - DAX answers from a cache: it is not consistent and cannot be used.
//   - A table that was restored is as old as its backup: what was completed since is handled again (rule 50).
//   - A hot key, or a partition above 1,000 writes a second, is throttled: that key, or its neighbours, fail.
//
// The consumer needs dynamodb:GetItem, PutItem and UpdateItem on the table, and DescribeTable and DescribeTimeToLive for
// [Store.Check]. [Store.Forget] also needs DeleteItem, which a consumer had better not have.
//
// # Cost per message
//
// An event that is new costs two writes, its claim and its completion: two round trips, and two write units while the item
// has at most 1 KB (it has about 500 bytes without result). A duplicate costs one refused write, which is billed like one that is
// made; where most are duplicates, ask with Look first, which is a consistent read. A renewal is a write. The birth of a scope is one
// write for each process. Keys of a call are sent [Parallel] at a time; let the HTTP client keep as many connections:
//
//	http := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
//		t.MaxIdleConnsPerHost = 128
//	})
package dynamostore
