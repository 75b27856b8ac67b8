package kgoidem

import (
	"context"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"github.com/idem-go/idem/kafkaauth"
)

// OAuth returns the mechanism OAUTHBEARER (RFC 7628) with the tokens of source, for [Config].SASL.
// The source is called at each new connection, and before the brokers end the session of a
// connection (KIP-368), for at most 15 seconds. An error that matches [kafkaauth.ErrRefused] ends a
// start with an error that matches runner.ErrUnauthorized. All other errors are waited for, like
// brokers that are down.
func OAuth(source kafkaauth.TokenSource) sasl.Mechanism {
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := source.Fetch(ctx)
		if err != nil {
			return oauth.Auth{}, err
		}
		return oauth.Auth{Token: token.Value, Extensions: token.Extensions}, nil
	})
}
