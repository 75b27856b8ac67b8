package kafkaauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// ErrRefused means that an authorization server refuses the credentials of the client. No retry
// can help until a person mends them. All other errors of a [TokenSource] are outages, which end
// by themselves.
var ErrRefused = errors.New("credentials are refused")

// TokenSource returns an access token. A Kafka client asks for a token at each new connection, and
// before the broker ends an authenticated session. Must be safe for concurrent use, and must
// return when ctx ends. An error that matches [ErrRefused] ends the start of a consumer; all others
// are waited for.
//
// [Cached] keeps the token of a source that fetches a new one at each call.
type TokenSource func(ctx context.Context) (Token, error)

// Token is an access token for SASL/OAUTHBEARER. No String method or encoding shows Value.
type Token struct {
	// Value is the token. Required.
	Value string
	// Expires is the end of the token. The zero value means that the end is not known.
	Expires time.Time
	// Extensions are further SASL extensions (RFC 7628), such as the pool of a cloud service.
	Extensions map[string]string
}

// Check returns an error if the value cannot be sent: it is empty, or has bytes that a token cannot
// have (RFC 6750), such as spaces and line ends.
func (t Token) Check() error {
	if t.Value == "" {
		return errors.New("access token is empty")
	}
	for i := range len(t.Value) {
		if c := t.Value[i]; c <= ' ' || c > '~' {
			return fmt.Errorf("access token has the byte %#02x at position %d", c, i)
		}
	}
	return nil
}

// String hides the value.
func (t Token) String() string {
	if t.Expires.IsZero() {
		return "access token"
	}
	return "access token until " + t.Expires.UTC().Format(time.RFC3339)
}

// GoString hides the value from %#v too.
func (t Token) GoString() string { return "kafkaauth.Token{" + t.String() + "}" }

// LogValue hides the value from structured logs.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalJSON hides the value from JSON.
func (t Token) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(t.String())
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	return data, nil
}
