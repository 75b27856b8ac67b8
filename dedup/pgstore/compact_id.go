package pgstore

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/jackc/pgx/v5/pgtype"
)

// idForm is how the 16 bytes of a compact row stand for an ID. The form is part of the row's kind,
// so an ID of one form never meets an ID of another (rule 28). The numbers are on disk: never
// change or reuse one.
type idForm int16

const (
	formHash idForm = 1 // SHA-256 of the ID's bytes, cut to 128 bits
	formUUID idForm = 2 // the bytes of a UUID; UUIDs ordered by time stay in order
	formULID idForm = 3 // the bytes of a ULID
)

// compactID returns the form and the bytes of an ID. The bytes stand for the ID itself only if
// exactly the same text can be restored. No text is trimmed and no case is folded: "ABC" and
// "abc" are two events (P-23).
func compactID(id string) (idForm, [16]byte) {
	switch len(id) {
	case 36:
		if b, ok := parseUUID(id); ok && uuidText(b) == id {
			return formUUID, b
		}
	case 26:
		if b, ok := parseULID(id); ok && ulidText(b) == id {
			return formULID, b
		}
	}
	sum := sha256.Sum256([]byte(id))
	return formHash, [16]byte(sum[:16])
}

// compactText returns the ID that b stands for. A hash has no ID to return.
func compactText(f idForm, b [16]byte) (id string, ok bool) {
	switch f {
	case formUUID:
		return uuidText(b), true
	case formULID:
		return ulidText(b), true
	default:
		return "", false
	}
}

func parseUUID(s string) (b [16]byte, ok bool) {
	if s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return b, false
	}
	_, err := hex.Decode(b[:], []byte(s[:8]+s[9:13]+s[14:18]+s[19:23]+s[24:]))
	return b, err == nil
}

func uuidText(b [16]byte) string { return pgtype.UUID{Bytes: b, Valid: true}.String() }

// crockford is the alphabet of ULIDs: upper case, without I, L, O and U. Readers of ULIDs accept
// aliases of some digits. Here such an alias is another ID.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// parseULID reads 26 digits of 5 bits. 26 digits hold 130 bits, so the first digit is at most 7.
func parseULID(s string) (b [16]byte, ok bool) {
	if s[0] > '7' {
		return b, false
	}
	var hi, lo uint64
	for i := range len(s) {
		digit := -1
		for d := range len(crockford) {
			if crockford[d] == s[i] {
				digit = d
			}
		}
		if digit < 0 {
			return b, false
		}
		hi, lo = hi<<5|lo>>59, lo<<5|uint64(digit)
	}
	for i := range 8 {
		b[i], b[8+i] = byte(hi>>(56-8*i)), byte(lo>>(56-8*i))
	}
	return b, true
}

func ulidText(b [16]byte) string {
	var hi, lo uint64
	for i := range 8 {
		hi, lo = hi<<8|uint64(b[i]), lo<<8|uint64(b[8+i])
	}
	var out [26]byte
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = crockford[lo&31]
		hi, lo = hi>>5, lo>>5|hi<<59
	}
	return string(out[:])
}
