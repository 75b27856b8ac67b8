// Package httpidem answers HTTP requests that carry an Idempotency-Key once: the first request runs the handler, every later one
// with the same key gets the stored answer. It implements the rules of the Internet-Draft
// draft-ietf-httpapi-idempotency-key-header-07.
//
//	m, err := httpidem.New(httpidem.Config{
//		Store:     store,        // the store that your Kafka consumers use, or any other
//		Scope:     "transfers",  // who remembers
//		Principal: account,      // who asks: nobody gets another one's answers
//		Secret:    secret,       // keys the hash of the request
//	})
//	mux.Handle("POST /transfers", authenticate(m.Handler(transfer)))
//
// # Two ways
//
// With [New] the key is claimed in the store, the handler runs, and its answer is kept: whatever it was, once the handler ran, since
// nobody can tell what a handler that answered 500 has done before. It says [NotApplied] if it has done nothing. A process that
// dies in the middle leaves a key whose outcome nobody knows: 409, until somebody has looked (idem event release).
//
// With [NewTx] handler, claim and answer share one transaction of the database, which the handler takes from [TxFrom]. Answers
// below 400 commit with their effects; 4xx are kept without effects; 5xx and panics roll back and are forgotten. No outcome
// stays unknown.
//
// # What a client sees
//
//	first request                        as without the middleware, once it is stored
//	again, done                          the stored status, allowed headers and body; Idempotent-Replayed: true
//	again, still running                 409 request_in_flight, Retry-After (or it waits: [Config].Wait)
//	same key, another payload            422 request_signature_mismatch
//	no key where one is required         400 idempotency_key_missing
//	a key that is none                   400 idempotency_key_invalid
//	an earlier run was cut short         409 unknown_outcome
//	done, but the answer was too large   409 not_replayable
//	too many keys at work                429 too_many_keys
//	a body that was read in front        500 body_consumed
//	a function of the Config failed      503 check_failed, Retry-After
//	the store cannot be asked           503 store_unavailable, Retry-After
//
// Errors are application/problem+json (RFC 9457).
//
// # Where it stands
//
// Behind authentication and authorisation, since a replay must be refused to whom the request would be refused (H-12); before
// compression if the compressed bytes are to be kept, behind it otherwise (H-17). Replays should be free: put [Middleware].Lookup before
// your rate limiter and [Middleware].Handler behind it (rule 21).
package httpidem
