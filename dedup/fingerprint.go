package dedup

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Fingerprint stands for what must be equal in two copies of one event: a keyed hash (HMAC-SHA-256, cut) of it, or the
// [Checksum] of all of it. The zero value is not compared. Compare two with [Differ], and keep what Bytes returns.
type Fingerprint [16]byte

// checksumLen is how many bytes of a fingerprint a checksum takes. The others are zero.
const checksumLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of a record's value as a fingerprint. It finds a copy with another content by accident or
// mistake. It is no protection against people: another content with the same checksum is quickly made.
func Checksum(value []byte) (f Fingerprint) {
	binary.BigEndian.PutUint32(f[:checksumLen], max(crc32.Checksum(value, castagnoli), 1)) // zero is not compared
	return f
}

// IsChecksum reports whether f is a [Checksum] and no keyed hash.
func (f Fingerprint) IsChecksum() bool {
	return f != (Fingerprint{}) && [12]byte(f[checksumLen:]) == [12]byte{}
}

// Comparison says how copies of an event are compared, for a person to read.
type Comparison uint8

// The comparisons.
const (
	NotCompared   Comparison = iota
	ByChecksum               // of the whole value
	ByFingerprint            // a keyed hash of chosen fields
)

var comparisonNames = [...]string{"not compared", "checksum", "fingerprint"}

// String is the comparison in lower case.
func (c Comparison) String() string {
	if int(c) < len(comparisonNames) {
		return comparisonNames[c]
	}
	return fmt.Sprintf("comparison(%d)", uint8(c))
}

// Comparison says which kind f is.
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

// Bytes is what a store keeps of f: 4 bytes of a checksum, 16 of a keyed hash, and nil of the zero value. It is a part of f, no
// copy. [ParseFingerprint] reads it.
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

// ParseFingerprint reads what [Fingerprint.Bytes] returned. ok is false for anything else.
func ParseFingerprint(b []byte) (f Fingerprint, ok bool) {
	if len(b) > len(f) {
		return f, false
	}
	copy(f[:], b)
	return f, len(f.Bytes()) == len(b)
}

// Differ reports whether a and b say that two copies of an event have different contents. Only two checksums can say so, or two
// keyed hashes: one of each, or none on one side, are not compared.
func Differ(a, b Fingerprint) bool {
	var none Fingerprint
	return a != b && a != none && b != none && a.IsChecksum() == b.IsChecksum()
}
