package kafkagoidem

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/kafkaauth"
)

func TestBearerMessage(t *testing.T) {
	extension := func(key, value string) kafkaauth.Token {
		return kafkaauth.Token{Value: "abc", Extensions: map[string]string{key: value}}
	}
	for name, c := range map[string]struct {
		token kafkaauth.Token
		want  string
		bad   string
	}{
		"token": {kafkaauth.Token{Value: "abc"}, "n,,\x01auth=Bearer abc\x01\x01", ""},
		"extensions": {
			kafkaauth.Token{Value: "abc", Extensions: map[string]string{"pool": "p 1", "cluster": "c"}},
			"n,,\x01auth=Bearer abc\x01cluster=c\x01pool=p 1\x01\x01", "",
		},
		"second token":         {extension("auth", "Bearer x"), "", `extension "auth": the name`},
		"no name":              {extension("", "x"), "", `extension "": the name`},
		"a hyphen":             {extension("a-b", "x"), "", `extension "a-b": the name`},
		"a field in the value": {extension("a", "x\x01b=c"), "", `extension "a": the value`},
		"no ASCII":             {extension("a", "ä"), "", `extension "a": the value`},
	} {
		t.Run(name, func(t *testing.T) {
			mechanism := OAuth(func(context.Context) (kafkaauth.Token, error) { return c.token, nil })
			require.Equal(t, "OAUTHBEARER", mechanism.Name())
			_, message, err := mechanism.Start(t.Context())
			if c.bad != "" {
				require.ErrorContains(t, err, c.bad)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, string(message))
		})
	}
}

func TestBearerSession(t *testing.T) {
	done, response, err := bearerSession{}.Next(t.Context(), []byte(`{"status":"invalid_token"}`))
	require.NoError(t, err)
	require.False(t, done)
	require.Equal(t, "\x01", string(response))
	done, _, err = bearerSession{}.Next(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, done)
}
