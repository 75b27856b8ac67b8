package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"
)

// The bounds of the secret of a [sealer], in bytes.
const (
	minKey = 32
	maxKey = 4096
)

// sealer encrypts and authenticates the value of one cookie: a browser can neither read nor change
// it.
type sealer struct {
	aead cipher.AEAD
	name string
}

// newSealer returns a sealer for the cookie of a name. Sealers of one secret and several names do
// not accept each other's values.
func newSealer(secret []byte, name string) (*sealer, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "idem ops cookie "+name, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &sealer{aead, name}, err
}

// sealed is the content of a cookie.
type sealed struct {
	Expires int64           `json:"e"` // seconds since 1970
	Value   json.RawMessage `json:"v"`
}

// maxCookie bounds the text of a cookie: browsers refuse cookies of more than 4096 bytes with the
// name and the attributes.
const maxCookie = 3800

var (
	errSeal   = errors.New("the cookie is not one of this page, or was changed")
	errOver   = errors.New("the cookie has expired")
	errCookie = errors.New("the cookie would be too large")
)

func (s *sealer) seal(value any, expires time.Time) (string, error) {
	inner, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	plain, err := json.Marshal(sealed{expires.Unix(), inner})
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(s.name)))
	if len(text) > maxCookie {
		return "", errCookie
	}
	return text, nil
}

func (s *sealer) open(text string, value any, now time.Time) error {
	if len(text) > maxCookie {
		return errSeal
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return errSeal
	}
	plain, err := s.aead.Open(nil, nil, raw, []byte(s.name))
	if err != nil {
		return errSeal
	}
	var content sealed
	if err := json.Unmarshal(plain, &content); err != nil {
		return err
	}
	if now.Unix() >= content.Expires {
		return errOver
	}
	return json.Unmarshal(content.Value, value)
}
