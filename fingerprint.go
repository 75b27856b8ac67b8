package idem

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
)

// fingerprinter returns a function that makes the fingerprint of the named JSON fields.
func fingerprinter(secret []byte, fields []string) (func(*Message) (dedup.Fingerprint, error), error) {
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
	return func(m *Message) (fp dedup.Fingerprint, err error) {
		mac := hmac.New(sha256.New, secret)
		for _, path := range paths {
			raw, err := jsonField(m.Value, path)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return fp, err
			}
			addField(mac, raw)
		}
		copy(fp[:], mac.Sum(nil))
		return fp, nil
	}, nil
}

// addField writes a field with its length in front, so that no two lists of fields give the same bytes. White space in
// nested values does not count.
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
