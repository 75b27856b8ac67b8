package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"github.com/idem-go/idem/kafkaauth"
)

// SASL authenticates to the brokers. Set up other mechanisms through [Config].Sarama.
type SASL struct {
	// Mechanism is "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512" or "OAUTHBEARER". Required.
	Mechanism string
	// User is required, except for OAUTHBEARER. There the brokers take the user from the token, and
	// User is only named in logs and in the commands that grant rights.
	User string
	// Password is required, except for OAUTHBEARER. Logs never contain the password.
	Password string
	// Token is required for OAUTHBEARER. It is called at each new connection, and before the
	// brokers end the session of a connection (KIP-368), with a context of 15 s. An error that
	// matches [kafkaauth.ErrRefused] is an [ErrUnauthorized]; all others are waited for, like
	// brokers that are down.
	Token kafkaauth.TokenSource
}

// String hides the password.
func (s SASL) String() string {
	if s.User == "" && s.Mechanism == sarama.SASLTypeOAuth {
		return s.Mechanism
	}
	return fmt.Sprintf("%s as %q", s.Mechanism, s.User)
}

// GoString hides the password from %#v too.
func (s SASL) GoString() string { return "consumer.SASL{" + s.String() + "}" }

// LogValue hides the password from structured logs.
func (s SASL) LogValue() slog.Value {
	return slog.GroupValue(slog.String("mechanism", s.Mechanism), slog.String("user", s.User))
}

// MarshalJSON hides the password from JSON, in which slog writes structs that contain a SASL.
func (s SASL) MarshalJSON() ([]byte, error) {
	type shown struct{ Mechanism, User string }
	data, err := json.Marshal(shown{s.Mechanism, s.User})
	if err != nil {
		return nil, fmt.Errorf("SASL: %w", err)
	}
	return data, nil
}

func (s SASL) apply(sc *sarama.Config) {
	n := &sc.Net.SASL
	n.Enable = true
	n.Mechanism = sarama.SASLMechanism(s.Mechanism)
	n.User, n.Password = s.User, s.Password
	switch s.Mechanism {
	case sarama.SASLTypeSCRAMSHA256:
		n.SCRAMClientGeneratorFunc = newSCRAM(scram.SHA256)
	case sarama.SASLTypeSCRAMSHA512:
		n.SCRAMClientGeneratorFunc = newSCRAM(scram.SHA512)
	case sarama.SASLTypeOAuth:
		if s.Token != nil {
			n.TokenProvider = tokenProvider{s.Token}
		}
	}
}

// tokenProvider passes tokens to sarama.
type tokenProvider struct{ source kafkaauth.TokenSource }

// Token implements [sarama.AccessTokenProvider].
func (p tokenProvider) Token() (*sarama.AccessToken, error) {
	token, err := p.source.Fetch(context.Background())
	switch {
	case errors.Is(err, kafkaauth.ErrRefused):
		return nil, fmt.Errorf("%w: %w", ErrUnauthorized, err)
	case err != nil:
		return nil, err
	}
	return &sarama.AccessToken{Token: token.Value, Extensions: token.Extensions}, nil
}

func newSCRAM(hash scram.HashGeneratorFcn) func() sarama.SCRAMClient {
	return func() sarama.SCRAMClient { return &scramClient{hash: hash} }
}

// scramClient is one SCRAM conversation.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

// Begin starts the conversation.
func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return fmt.Errorf("SCRAM: %w", err)
	}
	c.conversation = client.NewConversation()
	return nil
}

// Step answers a challenge.
func (c *scramClient) Step(challenge string) (string, error) {
	return c.conversation.Step(challenge)
}

// Done reports whether the conversation is over.
func (c *scramClient) Done() bool { return c.conversation.Done() }
