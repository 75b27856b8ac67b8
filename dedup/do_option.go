package dedup

import "time"

// DoOption is a setting of one call of [Do] or [DoTx].
type DoOption func(*doSettings)

type doSettings struct {
	call      Call
	schema    uint32
	versioned bool // the call is for the key of its schema
}

// Schema is the version of the function's result; the default is 1. A kept result of another
// version is not replayed: the function runs again and has its effect again, once for each
// version. An older release may replay its own version meanwhile.
func Schema(version uint32) DoOption { return func(s *doSettings) { s.schema = version } }

// SamePayload makes the call fail with [ErrConflict] if the key was used with another fingerprint.
// Zero, the default: not compared.
func SamePayload(f Fingerprint) DoOption { return func(s *doSettings) { s.call.Fingerprint = f } }

// OrSamePayload accepts a second fingerprint of the payload beside that of [SamePayload]: the one
// under another secret, while the secret changes. Zero, the default: no second fingerprint.
func OrSamePayload(f Fingerprint) DoOption {
	return func(s *doSettings) { s.call.SecondFingerprint = f }
}

// KeepFor is the retention of the result. Zero or less, the default: [GuardConfig].Retention.
func KeepFor(d time.Duration) DoOption { return func(s *doSettings) { s.call.Retention = d } }

// WaitFor is the wait budget of the call. Zero, the default: [GuardConfig].Wait; negative: no wait.
func WaitFor(d time.Duration) DoOption { return func(s *doSettings) { s.call.Wait = d } }

func newDoSettings(key Key, opts []DoOption) *doSettings {
	s := &doSettings{call: Call{Key: key}, schema: 1}
	for _, o := range opts {
		o(s)
	}
	return s
}
