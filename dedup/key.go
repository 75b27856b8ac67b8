package dedup

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxPart is the maximum length of each part of a [Key], in bytes. Four parts of this length fit
// into an index entry of Postgres, which holds about 2,700 bytes.
const MaxPart = 255

// ErrKey matches every error of [Key.Validate].
var ErrKey = errors.New("invalid key")

// Key is the identity of an event in a store: equal keys are one event. Parts are compared byte by
// byte, without trimming or case folding.
type Key struct {
	// Tenant separates customers that may use the same IDs. Empty is a tenant like any other.
	Tenant string
	// Scope is a namespace of keys, by default the consumer group: two groups handle the same event
	// once each.
	Scope string
	// Type is the event type. An ID is unique within its type only.
	Type string
	// ID is the business identity that the producer gave the event once. Offsets and message IDs
	// differ between copies and are never an identity.
	ID string
}

// Validate returns nil if every store can hold k: ID has 1 to [MaxPart] bytes, the other parts have
// at most [MaxPart], and all are valid UTF-8 without NUL bytes. Its error matches [ErrKey].
func (k Key) Validate() error {
	if k.ID == "" {
		return fmt.Errorf("%w: no ID", ErrKey)
	}
	for _, p := range [...]struct{ name, value string }{
		{"tenant", k.Tenant}, {"scope", k.Scope}, {"type", k.Type}, {"ID", k.ID},
	} {
		if err := validPart(p.value); err != nil {
			return fmt.Errorf("%w: %s %w", ErrKey, p.name, err)
		}
	}
	return nil
}

func validPart(s string) error {
	switch {
	case len(s) > MaxPart:
		return fmt.Errorf("has %d bytes, the limit is %d", len(s), MaxPart)
	case strings.IndexByte(s, 0) >= 0:
		return errors.New("contains a NUL byte")
	case !utf8.ValidString(s):
		return errors.New("is not valid UTF-8")
	}
	return nil
}

// Compare orders keys by tenant, scope, type and ID, bytewise. Requests to a [Store] ascend in this
// order, so that two batches with the same keys never deadlock.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		strings.Compare(k.Tenant, o.Tenant),
		strings.Compare(k.Scope, o.Scope),
		strings.Compare(k.Type, o.Type),
		strings.Compare(k.ID, o.ID),
	)
}

// String returns the key as one text, "tenant:scope:type:id". Different keys have different texts:
// in each part '%', ':', '{', '}' and control characters are percent-encoded. So no part can forge
// the hash tag of a Redis Cluster.
func (k Key) String() string {
	var usual [128]byte
	return string(k.Append(usual[:0]))
}

// Append appends the text of [Key.String] to b and returns the extended slice.
func (k Key) Append(b []byte) []byte {
	b = append(escape(b, k.Tenant), ':')
	b = append(escape(b, k.Scope), ':')
	b = append(escape(b, k.Type), ':')
	return escape(b, k.ID)
}

func escape(b []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	start := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '%', c == ':', c == '{', c == '}', c < 0x20, c == 0x7f:
			b = append(append(b, s[start:i]...), '%', digits[c>>4], digits[c&15])
			start = i + 1
		}
	}
	return append(b, s[start:]...)
}

// UUID returns a UUID (version 8, RFC 9562) cut from the SHA-256 of k and the given purposes. It
// has 36 characters and is the same at every attempt: use it as the idempotency key of an outside
// API. The scope does not count, so that renaming a consumer group does not repeat effects. Give a
// purpose to each of several calls for one event.
func (k Key) UUID(purpose ...string) string {
	k.Scope = ""
	h := sha256.New()
	var usual [128]byte
	b := k.Append(usual[:0])
	for _, p := range purpose {
		b = escape(append(b, ':'), p)
	}
	h.Write(b)
	return uuid8(h.Sum(nil))
}

func uuid8(sum []byte) string {
	u := [16]byte(sum[:16])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	var out [36]byte
	hex.Encode(out[0:8], u[0:4])
	hex.Encode(out[9:13], u[4:6])
	hex.Encode(out[14:18], u[6:8])
	hex.Encode(out[19:23], u[8:10])
	hex.Encode(out[24:36], u[10:16])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:])
}

// Join makes one ID of several parts, for a composite identity such as
// Join("order", "12345", "charge"). Different parts make different IDs: Join("a:b", "c") and
// Join("a", "b:c") differ. A single part without special characters stays as it is.
func Join(parts ...string) string {
	var usual [128]byte
	b := usual[:0]
	for i, p := range parts {
		if i > 0 {
			b = append(b, ':')
		}
		b = escape(b, p)
	}
	return string(b)
}

// Hash makes an ID of fixed length out of parts of any length, for events without a short identity.
// The ID is a version 8 UUID, cut from the SHA-256 of [Join] of the parts. Different parts have the
// same ID only if SHA-256 collides in 122 bits.
func Hash(parts ...string) string {
	sum := sha256.Sum256([]byte(Join(parts...)))
	return uuid8(sum[:])
}
