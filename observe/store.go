package observe

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
)

// StoreObserver gets the outages of a store, of the producer of dead letters, and of the service of
// a decoder. Each event with Down is followed by one without. That one comes at the end of the
// outage, when the processor is closed, or when no event waits for the decoder any longer.
type StoreObserver interface {
	ObserveStore(context.Context, StoreEvent)
}

// StoreEvent is the begin or the end of an outage.
type StoreEvent struct {
	Group string
	Name  string        // "store *pgstore.Store", "producer", or the name of a decoder
	Down  bool          // begin of an outage
	Ended bool          // the processor was closed, or left the decoder, during the outage
	For   time.Duration // duration of the outage, if Down is not set
	Err   error         // reason, if Down is set
}

// StoreCallObserver gets every call of a store.
type StoreCallObserver interface {
	ObserveStoreCall(context.Context, StoreCallEvent)
}

// StoreVerb is the method of a store that was called.
type StoreVerb uint8

const (
	// VerbClaim is [dedup.Store].Claim.
	VerbClaim StoreVerb = iota + 1
	// VerbTransaction is a transaction with claims, handlers and commit, see [dedup.TxStore].
	VerbTransaction
	// VerbComplete is [dedup.Store].Complete.
	VerbComplete
	// VerbRelease is [dedup.Store].Release.
	VerbRelease
)

// String returns the name of the verb, which may be used as a metric label.
func (v StoreVerb) String() string {
	switch v {
	case VerbClaim:
		return "claim"
	case VerbTransaction:
		return "transaction"
	case VerbComplete:
		return "complete"
	case VerbRelease:
		return "release"
	}
	return "unknown"
}

// StoreCallEvent is one call of a store.
type StoreCallEvent struct {
	Group string
	Store string // type of the store, such as "*pgstore.Store"
	Verb  StoreVerb
	Keys  int           // zero for a transaction without a claim, see Config.Shadow of package idem
	Took  time.Duration // for a transaction: with its handlers
	// Err means that the state of all keys is unknown. For a transaction, Err may be the error of
	// the handler. The loss of a claim is not an error here, see [LostObserver].
	Err error
	// Verdicts has the number of answers by verdict, for claims and transactions with an answer.
	// See the method Verdict.
	Verdicts [dedup.TooOld + 1]uint32
	// Takeovers is the number of granted claims after the death of a holder.
	Takeovers int
}

// Verdict returns the number of answers with the verdict v.
func (e *StoreCallEvent) Verdict(v dedup.Verdict) int {
	if int(v) >= len(e.Verdicts) {
		return 0
	}
	return int(e.Verdicts[v])
}

// Count adds the answers of the call to Verdicts and Takeovers.
func (e *StoreCallEvent) Count(answers []dedup.Answer) {
	for i := range answers {
		if v := answers[i].Verdict; int(v) < len(e.Verdicts) {
			e.Verdicts[v]++
		}
		if answers[i].Verdict == dedup.Uncertain {
			e.Takeovers++
		}
	}
}
