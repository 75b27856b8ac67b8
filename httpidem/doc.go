// Package httpidem answers each HTTP request with an Idempotency-Key once: the first request runs
// the handler, and later requests with the same key get the stored answer. The package implements
// the Internet-Draft draft-ietf-httpapi-idempotency-key-header-07.
//
//	m, err := httpidem.New(httpidem.Config{
//		Store:     store,        // the store of your Kafka consumers, or any other
//		Scope:     "transfers",  // namespace of the keys
//		Principal: account,      // the user: answers are never shared between users
//		Secret:    secret,       // key of the hash of the request
//	})
//	mux.Handle("POST /transfers", authenticate(m.Handler(transfer)))
//
// # Claimed and transactional
//
// With [New], the middleware claims the key in the store, runs the handler, and stores the
// answer. Answers of any status are stored, except 408, 425 and 429, because a handler that
// answers 500 may have had effects. The handler calls [NotApplied] after a run without a change.
// If the process dies before the answer is stored, the outcome of the key is unknown: retries
// get 409 until an operator decides (idem event release).
//
// With [NewTx], handler, claim and answer share one transaction of the database, which the handler
// gets from [TxFrom]. Answers below 400 are committed with their effects. 4xx answers are stored
// without effects. 5xx answers and panics are rolled back and forgotten. The outcome of a key is
// always known.
//
// # Answers
//
//	first request                        that of the handler, after it is stored
//	again, done                          stored status, headers and body; Idempotent-Replayed: true
//	again, still running                 409 request_in_flight, Retry-After; see [Config].Wait
//	same key, another payload            422 request_signature_mismatch
//	no key where one is required         400 idempotency_key_missing
//	an invalid key                       400 idempotency_key_invalid
//	an earlier run was cut short         409 unknown_outcome
//	done, but the answer was too large   409 not_replayable
//	too many keys in flight              429 too_many_keys
//	a body that was read in front        500 body_consumed
//	a function of the Config failed      503 check_failed, Retry-After
//	the store is unavailable             503 store_unavailable, Retry-After
//
// Errors are application/problem+json (RFC 9457). docs/http.md has all of them.
//
// # Position
//
// Put the middleware behind authentication and authorisation, since a replay needs the same rights
// as the request. Put the middleware behind compression, so that answers are stored plain. In front
// of compression, all clients would get the encoding of the first one. Replays should not count in
// a rate limit: put [Middleware].Lookup in front of the limiter and [Middleware].Handler behind it.
package httpidem
