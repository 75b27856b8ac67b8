package httpidem

import (
	"net/http"
	"slices"
)

// ResultPolicy is what becomes of an answer and of what its handler did.
type ResultPolicy uint8

const (
	// Keep the answer; in a transaction, commit the effects with it.
	Keep ResultPolicy = iota + 1
	// KeepAnswer without effects: in a transaction what the handler did is taken back before the answer is committed. With a claim it
	// is Keep.
	KeepAnswer
	// Forget the answer: the next request runs the handler again. In a transaction what the handler did is rolled back.
	Forget
)

// Outcome is how a handler ended.
type Outcome struct {
	Status int
	// NotApplied says that the handler called [NotApplied].
	NotApplied bool
	// Tx says that it ran in a transaction.
	Tx bool
}

// DefaultResultPolicy forgets what [NotApplied] was said of, and 408, 425 and 429, which ask to come again. Of the rest it keeps everything
// that ran under a claim, 5xx too, since its effect may have happened (rule 19). In a transaction it keeps answers below 400 with their
// effects and 4xx without, and forgets 5xx (rule 20).
func DefaultResultPolicy(_ *http.Request, o Outcome) ResultPolicy {
	switch {
	case o.NotApplied:
		return Forget
	case o.Status == http.StatusRequestTimeout, o.Status == http.StatusTooEarly, o.Status == http.StatusTooManyRequests:
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

// resultPolicy decides about an answer. What ForgetStatus names has changed nothing, as if the handler had said so.
func (q *request) resultPolicy(status int, tx bool) ResultPolicy {
	if slices.Contains(q.m.cfg.ForgetStatus, status) {
		q.state.notApplied.Store(true)
		return Forget
	}
	return q.m.cfg.ResultPolicy(q.r, Outcome{Status: status, NotApplied: q.state.notApplied.Load(), Tx: tx})
}
