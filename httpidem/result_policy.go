package httpidem

import (
	"net/http"
)

// ResultPolicy decides about an answer and the effects of its handler.
type ResultPolicy uint8

const (
	// Keep stores the answer; a transaction is committed with the effects.
	Keep ResultPolicy = iota + 1
	// KeepAnswer stores the answer without effects: in a transaction the effects of the handler are
	// rolled back before the answer is committed. Under a claim, KeepAnswer acts like Keep.
	KeepAnswer
	// Forget does not store the answer: the next request runs the handler again. A transaction is
	// rolled back. After a 307 or 308 the next request may have another path or payload.
	Forget
)

// Outcome describes how a handler ended.
type Outcome struct {
	Status int
	// NotApplied is true if the handler called [NotApplied].
	NotApplied bool
	// Tx is true if the handler ran in a transaction.
	Tx bool
}

// DefaultResultPolicy forgets answers after [NotApplied], and 307, 308, 408, 425 and 429, which ask
// for the request again. Under a claim all other answers are kept, including 5xx, since the effect
// may have happened. In a transaction, other answers below 400 are kept with their effects and 4xx
// without, and 5xx are forgotten.
func DefaultResultPolicy(_ *http.Request, o Outcome) ResultPolicy {
	switch {
	case o.NotApplied, sendsElsewhere(o.Status):
		return Forget
	case o.Status == http.StatusRequestTimeout, o.Status == http.StatusTooEarly,
		o.Status == http.StatusTooManyRequests:
		return Forget
	case !o.Tx:
		return Keep
	case o.Status >= 500:
		return Forget
	case o.Status >= 400:
		return KeepAnswer
	default:
		return Keep
	}
}

// sendsElsewhere reports whether an answer asks for the same request at another address (RFC 9110,
// sections 15.4.8 and 15.4.9). The key then belongs to the request to that address.
func sendsElsewhere(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}
