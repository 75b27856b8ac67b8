package kgoidem

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/idem-go/idem/kafkaauth"
	"github.com/idem-go/idem/runner"
)

// TestRefusedLogin_K24: a runner that has served waits while the brokers refuse its tokens. A wrong
// password ends the runner at any time. All end a start.
func TestRefusedLogin_K24(t *testing.T) {
	source := func(context.Context) (kafkaauth.Token, error) { return kafkaauth.Token{}, nil }
	password := plain.Auth{User: "app", Pass: "secret"}.AsMechanism()
	for name, c := range map[string]struct {
		err              error
		password, tokens bool // waited for
	}{
		"log-in":               {kerr.SaslAuthenticationFailed, false, true},
		"mechanism":            {kerr.UnsupportedSaslMechanism, false, true},
		"too early":            {kerr.IllegalSaslState, true, true},
		"authorization server": {kafkaauth.ErrRefused, false, true},
	} {
		for _, tokens := range []bool{false, true} {
			cfg, waits := configFor([]string{"localhost:1"}, "orders"), c.password
			cfg.AllowInsecure, cfg.SASL = true, []sasl.Mechanism{password}
			if tokens {
				cfg.SASL, waits = []sasl.Mechanism{OAuth(source)}, c.tokens
			}
			cfg.Store = forever()
			r, err := New(cfg, routed(new(tally).handle))
			require.NoError(t, err)
			require.ErrorIs(t, r.life.Retry.Fatal(c.err), runner.ErrUnauthorized, name)
			r.life.Retry.Serving()
			require.Equal(t, waits, r.life.Retry.Fatal(c.err) == nil, "%s, tokens=%t", name, tokens)
		}
	}
}
