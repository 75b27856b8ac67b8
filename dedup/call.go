package dedup

import (
	"context"
	"time"
)

// Call is a call of [Guard.Enter] or [EnterTx].
type Call struct {
	Key Key
	// Fingerprint of the payload. Another one under the same key is a [Conflict]. Zero: not
	// compared.
	Fingerprint Fingerprint
	// SecondFingerprint is that of the same payload under another secret, and no conflict either.
	// Zero, the default: no second fingerprint.
	SecondFingerprint Fingerprint
	// Retention of the result. Zero or less: that of the guard.
	Retention time.Duration
	// Wait is the wait budget: how long the call waits for another caller of the key. Zero: that of
	// the guard; negative: no wait.
	Wait time.Duration
	// Detached lets the work go on when the context of the call has ended. Only waiting ends with
	// the context.
	Detached bool
}

// work returns the context of the function that the call runs.
func (c Call) work(ctx context.Context) context.Context {
	if c.Detached {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// differs is [Request.Differs] for the payload of the call.
func (c Call) differs(known Fingerprint) bool {
	r := Request{Fingerprint: c.Fingerprint, SecondFingerprint: c.SecondFingerprint}
	return r.Differs(known)
}
