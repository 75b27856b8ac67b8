// Package redisstore is a store in Redis 7.0 or later: on one server, behind Sentinel, or on a
// Redis Cluster. The store is fast, and Redis deletes expired records by itself. Use redisstore
// for effects that may be repeated in the worst case: mail, messages, calls of APIs with
// idempotency keys. For effects in a database, a store in that database is safer.
//
// # Guarantees
//
// Those of [dedup.Store], as long as the server keeps every acknowledged write (see Failure
// modes). The package also implements [dedup.Looker], [dedup.Checker], [dedup.Watcher],
// [dedup.Registrar] and [dedup.Operator]. The package does not implement [dedup.Lister], because
// Redis has no index by state or ID. Scripts of one key cannot maintain such an index, and a search
// would read millions of keys with SCAN. An operator needs the whole key of an event.
//
//   - Each change of a key is one command or one script, atomic on the server. Every call may be
//     repeated, because the record has the token of the claim. Keep the retries of go-redis on:
//     after a lost reply the client may repeat any command.
//   - Renewals, releases, take-overs, dead letters, delayed retries and results compare the
//     token before the write.
//   - A completion without a result is written for any holder of the claim, because the effect
//     has happened. The completion replaces the claim of another worker, a dead record and a
//     waiting record, and the late worker gets [dedup.LostError]. An earlier completion is never
//     replaced for good: the store restores a replaced one in a second step. If the process or
//     the connection breaks between the two steps, a done record may lose its result. The same
//     happens if a third worker completes the event between them. That needs one key that is
//     completed both with and without a result. After a store has seen a result, each write
//     follows a read, and the risk is gone.
//   - Fences ([dedup.Answer.Fence]) rise for as long as the record lives. Fences begin anew
//     after the record has expired, or after [Store.Forget].
//   - The record of a dead event has the origin of the delivery that was sent to the dead-letter
//     topic, if the completion names that origin.
//   - An event that the store may have handled and forgotten is [dedup.TooOld], and is not
//     claimed. See Expiry.
//
// # Schema
//
// Each event has one key, "idem:" and [dedup.Key.String]: idem:tenant:scope:type:id, with
// percent-encoding. Different events have different keys. The keys have no hash tag, so the events
// spread over all slots of a cluster. [Prefix] changes the prefix. Scripts use one key, which is
// KEYS[1]. The value is a string of bytes:
//
//	1   version: 1; a record of another version is dedup.ErrUnavailable
//	1   state: p claimed, o open (released, or waiting for a later copy), d done, x dead
//	1   flags: 1 uncertain, 2 reopened, 4 fingerprint, 8 result, 16 checksum
//	4   CRC-32C of the key's text, big endian: a record counts for its own key only
//	16  token of the last claim
//	16  fingerprint, if flagged: a keyed hash; or 4, if flagged: a checksum of the value
//	    numbers, as unsigned varints: fence, failures, take-overs, generation, retry,
//	    lease and total in milliseconds
//	    length of the first delivery, then: partition, offset,
//	    time in milliseconds since 1970 (signed varints), and the topic
//	    the rest: if dead the reason; if done and flagged the result's schema (varint) and data
//
// Times of first deliveries are in milliseconds, as in Kafka. The caller limits the size of
// results.
//
// Three kinds of keys belong to no event. Their names have one colon after the prefix, those of
// events have three. These keys have no TTL:
//
//	idem:born:<scope>    string: the first use of the scope, in milliseconds since 1970
//	idem:scope:<scope>   hash of a Registration: group, topic:<topic> = 1, descriptor:<type>
//	idem:topic:<topic>   set of the scopes that consume the topic
//
// # Expiry
//
// The command that writes a key also sets the TTL. Done, dead and open records live for their
// retention. A claim lives for lease + retention, the total. So the record outlives the lease, and
// after a crash of the holder the event is Uncertain and not forgotten. The remaining lease is the
// TTL minus (total - lease): only the server's clock counts, and no command asks for the time. A
// TTL that the store has not set (no TTL, or more than total) starts one more lease.
//
// The TTL runs on the wall clock of the server, also while the consumer stands still. So choose
// a retention longer than the longest outage, and longer than the longest distance between two
// copies of an event. If the retention was too short, the store answers [dedup.TooOld] instead
// of handling events again. An event without a record is TooOld if the origin's time and the
// birth of the scope both lie before
//
//	now - retention + margin
//
// Requests with AnyAge, and later copies that Idem has made, are exempt. The retention is that
// of the request. The margin is for clocks that differ, because events have the time of a
// producer or a broker. The margin is a hundredth of the retention, at least a minute, at most
// an hour, and never more than half of the retention. Now is the server's time, asked once a
// minute and advanced by the monotonic clock of this host. The birth of a scope is its first use
// in the store, by Register or by a claim. A store that is younger than the retention has
// forgotten no event, so a new consumer may begin with old events. An origin without a time, or
// with one before 1970, has no age.
//
// Imported and discarded events have a retention, too. Both also set the birth of their scope.
// Forget keeps the birth of the scope: an event older than the horizon stays TooOld, except with
// AnyAge or a later position.
//
// A longer retention takes effect for records written from then on. In the meantime, events that
// the shorter retention forgot may be Fresh.
//
// A process remembers the births of its scopes. Once a minute, a claim asks for the birth again,
// and gives it back to a Redis that was emptied meanwhile. So the answers to old events stay. An
// event younger than the horizon is Fresh again. An emptied Redis is a new store with new births if
// no process has given them back. For a new store, stop the consumers before you empty Redis.
//
// If the server with a remembered birth does not answer, the remembered birth counts for another
// minute. The claim that asked has waited for half a second at most, and at most for half of the
// time that its context had left. A client without ContextTimeoutEnabled may wait longer.
//
// A step of the server's clock forward shortens leases and retention. A step back lengthens them,
// but never makes a lease longer than a new one. Without persistence a restart forgets all events.
// With persistence the TTL goes on while the server is down: leases end, and claims become
// Uncertain.
//
// # Failure modes
//
// Each error of the server or the network, and each unreadable record, is [dedup.ErrUnavailable]
// and wraps the cause. Causes are a connection that is refused, closed or timed out, a pool without
// a free connection, and the answers LOADING, READONLY, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, BUSY,
// OOM, MISCONF, NOREPLICAS, NOAUTH, WRONGPASS, NOPERM and WRONGTYPE. A missing right, also inside a
// script, and a refused log-in are a [*dedup.SetupError]. If one command of a call fails, the call
// fails and answers no key. Only Renew goes on with the other keys. The store never works without
// the server.
//
//   - Memory full: with maxmemory-policy noeviction no claim is granted until there is room.
//     Leases can still be renewed, and an operator can still inspect and forget events. With any
//     other policy Redis deletes records without an error: [Store.Check] refuses it.
//   - Failover: replication is asynchronous. A new master may lack the last claims and
//     completions, and their events are handled again. The setting min-replicas-to-write bounds
//     the window by min-replicas-max-lag. This store does not send WAIT. A hook of the client may
//     add WAIT to each pipeline, and fail the call if too few replicas answer. That closes the
//     window only if the new master is a replica that answered. The same holds for a restored
//     snapshot: its claims come back as Uncertain. [Store.Watch] notices that another server
//     answers, and runners log it.
//   - Restart: with appendonly yes and appendfsync everysec, the last second may be lost; with
//     always, no write. Without appendonly, all writes since the last snapshot are lost
//     ([Store.Check] warns).
//   - The reply to a claim is lost: the claim holds until the end of the lease, unless released
//     with the same token. If the release overtakes the claim, no worker gets the claim, and the
//     event is Uncertain after one lease.
//   - Cluster: if one server fails, each batch with a key on that server fails as a whole. Only
//     Renew still renews the leases on the other servers ([dedup.PartError]). A repeated call
//     recognises the claims on other servers by the token; otherwise those claims end with their
//     lease. The client follows MOVED and ASK, so slots may be moved while claims run. Do not move
//     a slot back to the former server within seconds. A client that follows an ASK late would
//     find half of the slot there.
//   - Cluster: a claim or a look needs the birth of its scope. A process that has not read the birth
//     yet fails all claims of the scope while the server with idem:born:<scope> is down. Other
//     processes go on with the keys on the other servers.
//   - [Store.Check] refuses a ring of the client (redis.Ring), which moves the keys of a failed
//     server to other servers.
//
// The user of a consumer needs these rights. +ping and +info are for [Store.Ping], [Store.Check]
// and [Store.Watch]. The last four are for [Store.Register], which a consumer calls at its start.
// On a cluster the client also needs +cluster|slots.
//
//	ACL SETUSER idem on >password ~idem:* -@all
//	   +get +set +pttl +pexpire +eval +evalsha +time +ping +info
//	   +hget +hset +sadd +smembers
//
// [Store.Types] also needs +hkeys. [Store.Forget] also needs +del: do not grant that to consumers.
//
// Scripts are sent by their hash, and as text to a server that does not know the hash. So SCRIPT
// FLUSH and restarts need no action.
//
// # Cost per message
//
// One pipeline of SET NX GET claims any number of events that are new, done, dead or
// rescheduled. One of SET GET completes these events: two round trips per batch. A key that
// needs a decision on the server (claimed by another worker, released, waiting for this copy)
// costs one more. Renewals, releases, dead letters, delayed retries and results are one pipeline
// of scripts. A completion by script costs the server about four times as much as one by SET.
// Batches above 1,000 keys are sent in parts. On a cluster each node has a separate pipeline, at
// the same time.
//
// Old events are looked up with GET in the same pipeline. The server's time is one more round trip
// a minute, unless no event has an age. The birth of a scope is one round trip a minute for each
// process, and one more with the first. Otherwise a replay of a result is one round trip. Look and
// Inspect are one pipeline of scripts, Import is one of SET NX GET.
//
// An event with a key of 64 bytes costs 184 bytes of MEMORY USAGE, claimed or done, with token,
// origin and no fingerprint. The TTL and the slots of the tables take about 50 more.
package redisstore
