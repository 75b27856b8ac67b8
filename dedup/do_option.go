package dedup

import (
	"strconv"
	"time"
)

// firstSchema is the version of results whose call names none.
const firstSchema = 1

// DoOption is a setting of one call of [Do] or [DoTx].
type DoOption func(*doSettings)

type doSettings struct {
	key       Key
	call      Call
	schema    uint32
	versioned bool // the call is for the key of its schema
}

// Schema is the version of the function's result; the default is 1. A kept result of another
// version is not replayed: the function runs again and has its effect again, once for each
// version. An older release may replay its own version meanwhile.
//
// The result of another version than 1 has a record of its own, for its whole retention. The ID of
// that record is Hash("schema", version, ID), with the version in decimal. A run of such a version
// asks for the key itself too, and takes up to two more round trips. A replay takes one, as ever.
// [DoTx] asks in up to two more transactions, which are rolled back.
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
	s := &doSettings{key: key, call: Call{Key: key}, schema: firstSchema}
	for _, o := range opts {
		o(s)
	}
	if s.schema != firstSchema && key.Validate() == nil { // the hash would hide a mistake
		s.useVersionKey()
	}
	return s
}

// useVersionKey makes the call one for the key of its schema.
func (s *doSettings) useVersionKey() {
	version := strconv.FormatUint(uint64(s.schema), 10)
	s.call.Key.ID, s.versioned = Hash("schema", version, s.key.ID), true
}

// ofVersion reports whether the call begins with the key of its schema.
func (s *doSettings) ofVersion() bool { return s.versioned && s.schema != firstSchema }

// ofKey returns the settings for the key itself.
func (s *doSettings) ofKey() *doSettings {
	first := *s
	first.call.Key, first.versioned = s.key, false
	return &first
}
