package dedup

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// KeyringConfig has the keys of a [Keyring].
type KeyringConfig struct {
	// Keys are the secrets by key ID. Each has at least 32 random bytes. An ID has 1 to 64 bytes,
	// and is stored in readable form with each result. A key ID always means the same secret.
	Keys map[string][]byte
	// SealWith is the ID of the key that seals new results. Empty: new results are stored
	// unsealed, and sealed ones are opened.
	SealWith string
	// RefuseUnsealed refuses results that are not sealed with [ErrSealed]. Set it when all unsealed
	// results have expired: then no result without a key is replayed. By default, false, unsealed
	// results are replayed.
	RefuseUnsealed bool
}

// Keyring encrypts the results of [Do], of [DoTx] and of package httpidem in the store, and
// authenticates them: see [GuardConfig].Keyring. A sealed result opens only under the [Key] of the
// event and the [Result].Schema it was sealed for.
//
// A result is sealed by AES-256-GCM with a random nonce. The encryption key is derived from the
// secret for each key of an event (HKDF-SHA-256), so that the number of results has no limit.
//
// A new key needs no pause. Add it to Keys in all processes, then name it in SealWith, then drop
// the old one after the retention of results. The first key is introduced in the same order. A
// Keyring is safe for concurrent use. A nil *Keyring leaves results unsealed.
type Keyring struct {
	sealWith       string
	derive         map[string][]byte // pseudorandom keys of HKDF, by key ID
	refuseUnsealed bool
}

const (
	minKey   = 32 // bytes of a secret
	maxKeyID = 64 // bytes of a key ID

	// A sealed result is
	//
	//	sealedMark, version, length of the key ID, key ID, nonce, ciphertext, tag
	//
	// Neither JSON nor an encoded answer of httpidem begins with a zero byte.
	sealedMark    = "\x00idem"
	sealedVersion = 1
	sealedHead    = len(sealedMark) + 2
	sealedTail    = 12 + 16 // nonce and tag of AES-GCM
)

// NewKeyring returns a keyring. The error has all mistakes of cfg.
func NewKeyring(cfg KeyringConfig) (*Keyring, error) {
	k := &Keyring{
		sealWith: cfg.SealWith, refuseUnsealed: cfg.RefuseUnsealed,
		derive: make(map[string][]byte, len(cfg.Keys)),
	}
	var problems []error
	if len(cfg.Keys) == 0 {
		problems = append(problems, errors.New("no key is in Keys"))
	}
	for _, id := range slices.Sorted(maps.Keys(cfg.Keys)) {
		secret := cfg.Keys[id]
		if id == "" || len(id) > maxKeyID {
			problems = append(problems,
				fmt.Errorf("key ID %q has %d bytes, 1 to %d are allowed", id, len(id), maxKeyID))
		}
		if len(secret) < minKey {
			problems = append(problems, fmt.Errorf("key %q has %d bytes, at least %d are needed",
				id, len(secret), minKey))
			continue
		}
		derive, err := hkdf.Extract(sha256.New, secret, nil)
		if err != nil {
			problems = append(problems, fmt.Errorf("key %q: %w", id, err))
		}
		k.derive[id] = derive
	}
	if _, ok := cfg.Keys[cfg.SealWith]; !ok && cfg.SealWith != "" {
		problems = append(problems, fmt.Errorf("SealWith %q is not in Keys", cfg.SealWith))
	}
	if cfg.SealWith == "" && cfg.RefuseUnsealed {
		problems = append(problems,
			errors.New("RefuseUnsealed needs SealWith: new results would be refused"))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("keyring: %w", errors.Join(problems...))
	}
	return k, nil
}

// LogValue shows the key IDs, without secrets.
func (c KeyringConfig) LogValue() slog.Value {
	return slog.GroupValue(slog.String("seal_with", c.SealWith),
		slog.String("keys", strings.Join(slices.Sorted(maps.Keys(c.Keys)), " ")))
}

// String returns the text of [KeyringConfig.LogValue].
func (c KeyringConfig) String() string { return "dedup.KeyringConfig" + c.LogValue().String() }

// GoString returns the text of [KeyringConfig.LogValue].
func (c KeyringConfig) GoString() string { return c.String() }

// String returns the ID of the key that seals, without secrets.
func (k *Keyring) String() string {
	if k == nil {
		return "dedup.Keyring[none]"
	}
	return "dedup.Keyring[" + k.sealWith + "]"
}

// GoString returns the text of [Keyring.String].
func (k *Keyring) GoString() string { return k.String() }

// Overhead returns how many bytes Seal adds to a result.
func (k *Keyring) Overhead() int {
	if k == nil || k.sealWith == "" {
		return 0
	}
	return sealedHead + len(k.sealWith) + sealedTail
}

// Seal returns r in the form in which the store keeps it for key. No result stays no result.
func (k *Keyring) Seal(key Key, r Result) (Result, error) {
	if k.Overhead() == 0 || r.IsZero() {
		return r, nil
	}
	head := make([]byte, 0, k.Overhead()+len(r.Data))
	head = append(append(head, sealedMark...), sealedVersion, byte(len(k.sealWith)))
	head = append(head, k.sealWith...)
	aead, bound, err := k.aead(k.sealWith, head, key, r.Schema)
	if err != nil {
		return Result{}, fmt.Errorf("seal result: %w", err)
	}
	return Result{Schema: r.Schema, Data: aead.Seal(head, nil, r.Data, bound)}, nil
}

// Open returns the result that Seal has sealed for key. Results that are not sealed are returned
// unchanged, unless RefuseUnsealed is set. The error matches [ErrSealed].
func (k *Keyring) Open(key Key, r Result) (Result, error) {
	switch {
	case r.IsZero():
		return r, nil
	case !bytes.HasPrefix(r.Data, []byte(sealedMark)):
		if k != nil && k.refuseUnsealed {
			return Result{}, fmt.Errorf("%w: the result is not sealed", ErrSealed)
		}
		return r, nil
	case k == nil:
		return Result{}, fmt.Errorf("%w: there is no keyring", ErrSealed)
	case len(r.Data) < sealedHead || r.Data[len(sealedMark)] != sealedVersion:
		return Result{}, fmt.Errorf("%w: the form is unknown or cut", ErrSealed)
	}
	end := sealedHead + int(r.Data[sealedHead-1])
	if len(r.Data) < end+sealedTail {
		return Result{}, fmt.Errorf("%w: the result is cut", ErrSealed)
	}
	head, id := r.Data[:end:end], string(r.Data[sealedHead:end])
	if k.derive[id] == nil {
		return Result{}, fmt.Errorf("%w: the keyring has no key %q", ErrSealed, id)
	}
	aead, bound, err := k.aead(id, head, key, r.Schema)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	data, err := aead.Open(nil, nil, r.Data[end:], bound)
	if err != nil {
		return Result{}, fmt.Errorf(
			"%w: key %q does not fit, or the result was changed or moved", ErrSealed, id)
	}
	return Result{Schema: r.Schema, Data: data}, nil
}

// aead returns the cipher of one key of an event, and the data that is bound to the result. head is
// the readable part of the result.
func (k *Keyring) aead(id string, head []byte, key Key, schema uint32) (
	aead cipher.AEAD, bound []byte, err error) {
	bound = binary.BigEndian.AppendUint32(bytes.Clone(head), schema)
	for _, part := range [...]string{key.Tenant, key.Scope, key.Type, key.ID} {
		bound = binary.BigEndian.AppendUint32(bound, uint32(len(part)))
		bound = append(bound, part...)
	}
	derived, err := hkdf.Expand(sha256.New, k.derive[id], string(bound), 32)
	if err != nil {
		return nil, nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, nil, err
	}
	aead, err = cipher.NewGCMWithRandomNonce(block)
	return aead, bound, err
}
