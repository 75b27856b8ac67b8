package identity

import (
	"bytes"
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
func Fingerprinter(secret []byte, fields []string) (func(*idemtype.Message) (dedup.Fingerprint, error), error) {
	if len(secret) < 16 {
		return nil, fmt.Errorf("Fingerprint: the secret has %d bytes, at least 16 are needed", len(secret))
	}
	if len(fields) == 0 {
		return nil, errors.New("Fingerprint: name the fields to compare")
	}
	secret, paths := slices.Clone(secret), make([][]string, len(fields))
	for i, f := range fields {
		paths[i] = strings.Split(f, ".")
	}
	return func(m *idemtype.Message) (fp dedup.Fingerprint, err error) {
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

// addField writes the length of a field and the field, so that two lists of fields never give the
// same bytes. White space in nested values does not count.
func addField(mac hash.Hash, raw json.RawMessage) {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) == nil {
		raw = compact.Bytes()
	}
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(raw)))
	mac.Write(n[:])
	mac.Write(raw)
}
