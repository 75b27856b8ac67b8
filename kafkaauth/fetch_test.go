package kafkaauth

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFetch(t *testing.T) {
	good, outage := Token{Value: "abc", Extensions: map[string]string{"pool": "p"}}, errors.New("test")
	for name, c := range map[string]struct {
		token Token
		err   error
		text  string // of the error
	}{
		"token":   {token: good},
		"empty":   {text: "SASL/OAUTHBEARER: access token is empty"},
		"spoiled": {token: Token{Value: "abc\x01"}, text: "SASL/OAUTHBEARER: access token has the byte 0x01"},
		"outage":  {token: good, err: outage, text: "SASL/OAUTHBEARER: test"},
		"refused": {token: good, err: ErrRefused, text: "SASL/OAUTHBEARER: credentials are refused"},
	} {
		t.Run(name, func(t *testing.T) {
			source := TokenSource(func(context.Context) (Token, error) { return c.token, c.err })
			token, err := source.Fetch(t.Context())
			if c.text == "" {
				require.NoError(t, err)
				require.Equal(t, c.token, token)
				return
			}
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "abc")
			require.Zero(t, token)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
			}
		})
	}
}

func TestFetch_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := TokenSource(func(ctx context.Context) (Token, error) {
			<-ctx.Done()
			return Token{}, ctx.Err()
		})
		began := time.Now()
		_, err := source.Fetch(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, callTimeout, time.Since(began))
	})
}
