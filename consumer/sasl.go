package consumer

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// SASL authenticates to the brokers. Set up other mechanisms through [Config].Sarama.
type SASL struct {
	// Mechanism is "PLAIN", "SCRAM-SHA-256" or "SCRAM-SHA-512". Required.
	Mechanism string
	// User is required.
	User string
	// Password is required. Logs never contain the password.
	Password string
}

// String hides the password.
func (s SASL) String() string { return fmt.Sprintf("%s as %q", s.Mechanism, s.User) }

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
	}
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
