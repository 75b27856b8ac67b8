package identity

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// Fingerprinter returns a function that makes the fingerprint of the named JSON fields: their
// HMAC-SHA-256 under secret.
func Fingerprinter(secret []byte, fields []string) (FingerprintFunc, error) {
	if err := CheckSecret("Fingerprint", secret); err != nil {
		return nil, err
	}
	if len(fields) == 0 {
		return nil, errors.New("Fingerprint: name the fields to compare")
	}
	secret, paths := slices.Clone(secret), make([][]string, len(fields))
	for i, f := range fields {
		paths[i] = strings.Split(f, ".")
	}
	return func(_ context.Context, m *idemtype.Message, second []byte) (fp Pair, err error) {
		macs := newMACs(secret, second)
		for _, path := range paths {
			raw, err := field(m.Value, path)
			if err != nil && !errors.Is(err, idemtype.ErrNotFound) {
				return fp, err
			}
			macs.addField(raw)
		}
		return macs.sum(), nil
	}, nil
}

// Pair is the fingerprint of a message, and the one under a second secret; zero without one.
type Pair struct{ First, Second dedup.Fingerprint }

// FingerprintFunc makes the fingerprints of a message. A nil second makes no second fingerprint.
type FingerprintFunc func(ctx context.Context, m *idemtype.Message, second []byte) (Pair, error)

// CheckSecret returns an error for a secret that is too short.
func CheckSecret(option string, secret []byte) error {
	if len(secret) < 16 {
		return fmt.Errorf("%s: the secret has %d bytes, at least 16 are needed", option, len(secret))
	}
	return nil
}

// FingerprinterOf returns a function that makes the fingerprint of the values that the extractors
// find.
func FingerprinterOf(secret []byte, parts []Extractor) (FingerprintFunc, error) {
	if err := CheckSecret("FingerprintOf", secret); err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, errors.New("FingerprintOf: name the parts to compare")
	}
	secret = slices.Clone(secret)
	return func(ctx context.Context, m *idemtype.Message, second []byte) (fp Pair, err error) {
		macs := newMACs(secret, second)
		for i := range parts {
			v, err := parts[i].Find(ctx, m)
			switch {
			case errors.Is(err, idemtype.ErrNotFound):
				macs.addBytes(nil)
			case err != nil:
				return fp, err
			default:
				macs.addBytes(append([]byte{'='}, v...)) // differs from a missing one
			}
		}
		return macs.sum(), nil
	}, nil
}

// macs make the fingerprints of one content.
type macs struct{ first, second hash.Hash } // second may be nil

func newMACs(secret, second []byte) macs {
	m := macs{first: hmac.New(sha256.New, secret)}
	if second != nil {
		m.second = hmac.New(sha256.New, second)
	}
	return m
}

// addField adds the length of a field and the field, so that two lists of fields never give the
// same bytes. White space in nested values does not count.
func (m macs) addField(raw json.RawMessage) {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) == nil {
		raw = compact.Bytes()
	}
	m.addBytes(raw)
}

func (m macs) addBytes(b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	for _, mac := range [...]hash.Hash{m.first, m.second} {
		if mac != nil {
			mac.Write(n[:])
			mac.Write(b)
		}
	}
}

func (m macs) sum() (p Pair) {
	copy(p.First[:], m.first.Sum(nil))
	if m.second != nil {
		copy(p.Second[:], m.second.Sum(nil))
	}
	return p
}
