// Package redisstore is a store in Redis 7.0 or later, on one server, behind Sentinel, or on a Redis Cluster. It is
// fast and forgets by itself. Use it for effects that may be repeated in the worst case: mail, messages, calls of
// APIs that know idempotency keys. Effects in a database are safer with a store in that database.
//
// # Guarantees
//
// All of [dedup.Store], as long as the server loses nothing it has acknowledged (see Failure modes). The package also
// implements [dedup.Looker], [dedup.Checker], [dedup.Registrar] and [dedup.Operator]. It
// has no [dedup.Lister]: Redis has no index by state or ID, one beside the records could not be kept true by scripts of one key,
// and to look for them means SCAN over millions of keys (rule 34). A person needs the whole key of an event.
//
//   - Each change of a key is one command or one script, atomic on the server. Every call may be repeated: the token
//     of the claim is in the record, so that go-redis may retry what it likes when a reply is lost. Keep its
//     retries on.
//   - Renewing, releasing, taking over, giving up, moving on and storing results compare the token first (R-05,
//
//   - A completion without result is written whoever holds the claim: that the effect happened is a fact (rule 29).
//     It wins over a claim of somebody else, a dead record and a record that waits, and the late worker is told that
//     it was lost; it never wins over an earlier completion. When a completion finds that it replaced one, it puts it
//     back in a second step. Only a process that dies, or a connection that breaks, between the two can leave a done
//     record without the result of the earlier completion, and only if the same key is completed with and without
//     result. A store that has once seen a result, its own or another's, looks before it writes from then on, and
//     never takes that risk.
//   - Fences ([dedup.Answer.Fence]) rise for as long as the record lives; they begin anew when it has expired, or a person
//     forgot it.
//   - A record of a dead event has the origin of the delivery whose dead letter was sent, if its completion says which (rule 6).
//   - An event that may have been handled and forgotten is [dedup.TooOld], and is not claimed by asking. See Expiry.
//
// # Schema
//
// One key per event, "idem:" and [dedup.Key.String]: idem:tenant:scope:type:id, percent-encoded, injective and
// without hash tag, so that events spread over all slots of a cluster (R-17, rule 51). The prefix is an option
// ([Prefix]). Scripts touch one key, which is KEYS[1]. The value is a string of bytes:
//
//	1   version: 1. A record of another version is never answered from, it is dedup.ErrUnavailable (rule 35)
//	1   state: p claimed, o open (released, or waiting for a later copy), d done, x dead
//	1   flags: 1 uncertain, 2 reopened, 4 fingerprint follows, 8 result follows, 16 checksum follows
//	4   CRC-32C of the key's text, big endian: a record is only taken for that of its own key
//	16  token of the last claim
//	16  fingerprint, if flagged: a keyed hash; or 4, if flagged: a checksum of the value
//	    numbers, as unsigned varints: fence, failures, take-overs, generation, retry, lease and total in milliseconds
//	    length of what is known of the first delivery, then: partition, offset, time in milliseconds since 1970 (signed
//	    varints), and the topic
//	    the rest: if dead the reason; if done and flagged the result's schema (varint) and data
//
// Times of first deliveries are kept in milliseconds, as Kafka has them. Results are as long as the caller makes
// them.
//
// Three kinds of keys are about no event. Their names have one colon after the prefix where an event's has three, and they
// have no TTL:
//
//	idem:born:<scope>    string: when the store first heard of the scope, in milliseconds since 1970 by Redis' clock
//	idem:scope:<scope>   hash of what [Store.Register] recorded: group, topic:<topic> = 1, recipe:<type> = recipe
//	idem:topic:<topic>   set of the scopes that consume it
//
// # Expiry
//
// Every key has a TTL, set by the command that writes it. Done, dead and open records live for their
// retention. A claim lives for lease + retention, which is total, so that it outlives its lease: a holder that dies
// leaves an Uncertain event, not a forgotten one (rule 33). What is left of a lease is TTL - (total - lease): the
// server's clock alone decides, and no command has to ask for the time. A TTL that the store never sets (none, or
// more than total) starts one more lease.
//
// The TTL runs on the wall clock of the server, also while the consumer stands still. So the retention should be longer
// than the longest outage and the longest distance between two copies of an event. Where it was not, the store says so
// instead of handling events again in silence (rule 8): an event without a record is [dedup.TooOld] if its origin's time
// and the birth of its scope both lie before
//
//	now - retention + margin
//
// and neither AnyAge is set nor is it a later copy that Idem made. The retention is that of the request; the margin is
// for clocks that differ, since events have the time of a producer or a broker: a hundredth of the retention, at least a
// minute, at most an hour, and never more than half of the retention. Now is the server's time, asked once a minute and
// counted on by the monotonic clock of this host. A scope's birth is when the store first heard of it, by Register or by its first claim: a
// store that is younger than the retention has forgotten nothing, so a new consumer may begin with old events. An
// origin without time, or with one before 1970, has no age.
//
// What a person imports or gives up has its retention as well, and fixes the birth of its scope, so that it is not new when it
// was forgotten. Forget leaves nothing behind but the age of the scope: without a later position or AnyAge, an event older
// than the horizon stays TooOld.
//
// Two things this cannot see. A retention that is made longer takes effect for records written from then on, so for one
// retention more, events may be Fresh that the shorter one forgot. And a Redis that was emptied is a new store, whose
// scopes are born again.
//
// A step of the server's clock forward shortens leases and retention, a step back lengthens them, but never a lease
// beyond a new one. Without persistence a restart forgets everything; with it the TTL has run on while the server
// was down, so that leases are over and claims are Uncertain, not lost.
//
// # Failure modes
//
// Whatever the server answers that is not a record, and whatever happens on the way to it, is [dedup.ErrUnavailable],
// wrapping the cause: connection refused, closed or timed out, no free connection in the pool, LOADING, READONLY,
// MASTERDOWN, CLUSTERDOWN, TRYAGAIN, BUSY, OOM, MISCONF, NOREPLICAS, NOAUTH, WRONGPASS, NOPERM, WRONGTYPE, a record
// that cannot be read. A right that is missing and a log-in that is refused are a [*dedup.SetupError]. If one command of a call fails, the call fails and no key of it is answered. The store
// never works without the server.
//
//   - Memory full: with maxmemory-policy noeviction no claim is granted until there is room; leases can still be
//     renewed, and a person can still look and forget. With any other policy Redis forgets events in silence: [Store.Check] refuses it.
//   - Failover: replication is asynchronous, a new master may not know the last claims and completions, and their
//     events are handled again. The setting min-replicas-to-write makes the window smaller, and WAIT, which
//     this store does not use, would not close it. The same holds for a snapshot that is restored: claims of then
//     come back as Uncertain (rule 50).
//   - Restart: with appendonly yes and appendfsync everysec up to a second is forgotten, with always nothing; without
//     appendonly, all since the last snapshot ([Store.Check] warns, R-13).
//   - A claim whose reply never came is held until its lease ends, unless it is released under its token. If the
//     claim itself is still on its way when it is released, it is granted to nobody, and the event is Uncertain a
//     lease later (rule 32).
//   - Cluster: a batch that one dead server has a part in fails as a whole. What the other servers granted is recognised
//     by its token when the call is repeated, and ends with its lease if it is not. MOVED and ASK are followed, so slots
//     may be moved while claims run; a slot must not come back to a server it left within the last seconds, since a
//     client that follows an ASK late would find it half there again.
//   - A client side ring (redis.Ring) is refused by [Store.Check]: it moves the keys of a failed server to others.
//
// The user of the store needs no more than this (G-12), where +ping and +info are for [Store.Ping] and [Store.Check];
// on a cluster the client also needs +cluster|slots.
//
//	ACL SETUSER idem on >password ~idem:* -@all +get +set +pttl +pexpire +eval +evalsha +time +ping +info
//
// [Store.Register] also needs +hget +hset +sadd +smembers. [Store.Forget] also needs +del, which the user of a consumer had
// better not have.
//
// Scripts are sent by their hash, and by their text to a server that does not know them: SCRIPT FLUSH and restarts do
// not matter.
//
// # Cost per message
//
// One pipeline of SET NX GET claims any number of events that are new, done, dead or moved on, one of SET GET
// completes them: two round trips per batch. What needs a decision on the server (claimed by another, released,
// waiting for this copy) costs one more. Renewing, releasing, dead letters, moves and results are one pipeline of
// scripts; a completion by script costs the server about four times as much as one without. Batches above 1,000 keys
// are sent in parts. On a cluster each node has a pipeline of its own, at the same time. Old events are looked for with
// GET in the same pipeline. The server's time is one more round trip a minute, unless no event has an age, and the birth of a
// scope two for each process. So a call that finds its key done, as every replay of a result does, is one round trip with
// its result. Look and Inspect are one pipeline of scripts, Import one of SET NX GET.
//
// An event with a key of 64 bytes costs 184 bytes of MEMORY USAGE, claimed or done, with token, origin and no
// fingerprint, and about 50 more for its TTL and the tables' slots.
package redisstore
