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
	if err := checkSecret("Fingerprint", secret); err != nil {
		return nil, err
	}
	if len(fields) == 0 {
		return nil, errors.New("Fingerprint: name the fields to compare")
	}
	secret, paths := slices.Clone(secret), make([][]string, len(fields))
	for i, f := range fields {
		paths[i] = strings.Split(f, ".")
	}
	return func(_ context.Context, m *idemtype.Message) (fp dedup.Fingerprint, err error) {
		mac := hmac.New(sha256.New, secret)
		for _, path := range paths {
			raw, err := field(m.Value, path)
			if err != nil && !errors.Is(err, idemtype.ErrNotFound) {
				return fp, err
			}
			addField(mac, raw)
		}
		copy(fp[:], mac.Sum(nil))
		return fp, nil
	}, nil
}

// FingerprintFunc makes the fingerprint of a message.
type FingerprintFunc func(context.Context, *idemtype.Message) (dedup.Fingerprint, error)

func checkSecret(option string, secret []byte) error {
	if len(secret) < 16 {
		return fmt.Errorf("%s: the secret has %d bytes, at least 16 are needed", option, len(secret))
	}
	return nil
}

// FingerprinterOf returns a function that makes the fingerprint of what the extractors find.
func FingerprinterOf(secret []byte, parts []Extractor) (FingerprintFunc, error) {
	if err := checkSecret("FingerprintOf", secret); err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, errors.New("FingerprintOf: name the parts to compare")
	}
	secret = slices.Clone(secret)
	return func(ctx context.Context, m *idemtype.Message) (fp dedup.Fingerprint, err error) {
		mac := hmac.New(sha256.New, secret)
		for i := range parts {
			v, err := parts[i].Find(ctx, m)
			switch {
			case errors.Is(err, idemtype.ErrNotFound):
				addBytes(mac, nil)
			case err != nil:
				return fp, err
			default:
				addBytes(mac, append([]byte{'='}, v...)) // differs from a missing one
			}
		}
		copy(fp[:], mac.Sum(nil))
		return fp, nil
	}, nil
}

// addField writes the length of a field and the field, so that two lists of fields never give the
// same bytes. White space in nested values does not count.
func addField(mac hash.Hash, raw json.RawMessage) {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) == nil {
		raw = compact.Bytes()
	}
	addBytes(mac, raw)
}

func addBytes(mac hash.Hash, b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	mac.Write(n[:])
	mac.Write(b)
}
