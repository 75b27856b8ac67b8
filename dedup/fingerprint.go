package dedup

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Fingerprint is a checksum of the content that must be equal in two copies of one event. The
// fingerprint is a keyed hash (HMAC-SHA-256, cut) of chosen fields, or the [Checksum] of the
// whole value. The zero value is not compared. Compare two with [Differ]. A store keeps the
// result of Bytes.
type Fingerprint [16]byte

// checksumLen is the length of a checksum in a fingerprint. The other bytes are zero.
const checksumLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of a record's value as a fingerprint. A checksum finds copies that
// differ by accident or mistake. A checksum is no protection against attackers: they can make
// another content with the same checksum.
func Checksum(value []byte) (f Fingerprint) {
	// At least 1, since zero is not compared.
	binary.BigEndian.PutUint32(f[:checksumLen], max(crc32.Checksum(value, castagnoli), 1))
	return f
}

// Keyed returns the HMAC-SHA-256 (RFC 2104) of data under secret, cut to the length of a
// fingerprint. Use at least 16 random bytes as the secret, the same in all processes. To change
// the secret, see [OrSamePayload].
func Keyed(secret, data []byte) (f Fingerprint) {
	mac := hmac.New(sha256.New, secret)
	mac.Write(data)
	copy(f[:], mac.Sum(nil))
	return f
}

// IsChecksum reports whether f is a [Checksum], not a keyed hash.
func (f Fingerprint) IsChecksum() bool {
	return f != (Fingerprint{}) && [12]byte(f[checksumLen:]) == [12]byte{}
}

// Comparison is the way in which copies of an event are compared, for a person to read.
type Comparison uint8

// The comparisons.
const (
	NotCompared   Comparison = iota
	ByChecksum               // of the whole value
	ByFingerprint            // a keyed hash of chosen fields
)

var comparisonNames = [...]string{"not compared", "checksum", "fingerprint"}

// String returns the comparison in lower case.
func (c Comparison) String() string {
	if int(c) < len(comparisonNames) {
		return comparisonNames[c]
	}
	return fmt.Sprintf("comparison(%d)", uint8(c))
}

// Comparison returns the kind of f.
func (f Fingerprint) Comparison() Comparison {
	switch {
	case f == Fingerprint{}:
		return NotCompared
	case f.IsChecksum():
		return ByChecksum
	default:
		return ByFingerprint
	}
}

// Bytes returns the part of f that a store keeps: 4 bytes of a checksum, 16 of a keyed hash, nil of
// the zero value. The slice is a part of f, not a copy. [ParseFingerprint] reads these bytes.
func (f *Fingerprint) Bytes() []byte {
	switch {
	case *f == Fingerprint{}:
		return nil
	case f.IsChecksum():
		return f[:checksumLen:checksumLen]
	default:
		return f[:]
	}
}

// ParseFingerprint reads the result of [Fingerprint.Bytes]. ok is false for anything else.
func ParseFingerprint(b []byte) (f Fingerprint, ok bool) {
	if len(b) > len(f) {
		return f, false
	}
	copy(f[:], b)
	return f, len(f.Bytes()) == len(b)
}

// Differ reports whether two copies of an event with the fingerprints a and b have different
// contents. Only two checksums, or two keyed hashes, are compared. For one of each, or a zero
// value, the result is false.
func Differ(a, b Fingerprint) bool {
	var none Fingerprint
	return a != b && a != none && b != none && a.IsChecksum() == b.IsChecksum()
}
