package runner

import (
	"errors"
	"sync"
)

// reasons are the reasons why sessions end. Safe for concurrent use.
type reasons struct {
	mu        sync.Mutex
	lastCause error // why the last session ended
	failure   error // why nothing more can be consumed
	abandoned error // handlers that were left behind at the stop
	ending    error // why this member ends the session itself
	unsafe    error // offsets that could not be committed at the stop
}

// Err returns why consuming cannot continue, such as [idem.ErrNoProducer] or too many handlers that
// hang, or nil.
func (r *reasons) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// Fail notes why consuming cannot continue.
func (r *reasons) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
	}
}

// noteSession notes the begin of a session, with a nil cause, or the end.
func (r *reasons) noteSession(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastCause = cause
}

// noteAbandoned notes handlers that still run after the end of an assignment at the stop.
func (r *reasons) noteAbandoned(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = errors.Join(r.abandoned, err)
}

// noteUnsafe notes offsets that could not be committed.
func (r *reasons) noteUnsafe(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsafe = errors.Join(r.unsafe, err)
}

// noteEnding notes why this member ends the session itself.
func (r *reasons) noteEnding(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending == nil {
		r.ending = cause
	}
}

// TakeEnding returns, once, why this member ended the last session itself.
func (r *reasons) TakeEnding() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.ending
	r.ending = nil
	return err
}

// ownEnding returns why this member ends the session itself. It stays until
// [reasons.TakeEnding].
func (r *reasons) ownEnding() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ending
}

// Cause returns why the last session ended.
func (r *reasons) Cause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastCause
}

// AtStop returns the handlers left behind at the stop, and the offsets that could not be committed.
func (r *reasons) AtStop() (abandoned, unsafe error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.abandoned, r.unsafe
}
