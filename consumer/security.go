package consumer

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// SASL authenticates to the brokers. Other mechanisms can be set up through [Config].Sarama.
type SASL struct {
	// Mechanism is "PLAIN", "SCRAM-SHA-256" or "SCRAM-SHA-512". Required.
	Mechanism string
	// User is required.
	User string
	// Password is required. It never shows in logs.
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

// MarshalJSON hides the password from JSON, in which slog writes what a struct has around it.
func (s SASL) MarshalJSON() ([]byte, error) {
	type shown struct{ Mechanism, User string }
	data, err := json.Marshal(shown{s.Mechanism, s.User})
	if err != nil {
		return nil, fmt.Errorf("SASL: %w", err)
	}
	return data, nil
}

// LogValue shows the parts of a configuration that say which consumer it is, and nothing secret (G-04).
func (c Config) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.Any("brokers", c.Brokers), slog.String("group", c.Group), slog.Any("topics", c.Topics), slog.String("scope", c.Scope),
		slog.Bool("tls", c.TLS != nil),
	}
	if c.SASL != nil {
		attrs = append(attrs, slog.Any("sasl", *c.SASL))
	}
	return slog.GroupValue(attrs...)
}

// String shows what [Config.LogValue] does.
func (c Config) String() string { return "consumer.Config" + c.LogValue().String() }

// GoString shows what [Config.LogValue] does.
func (c Config) GoString() string { return c.String() }

func (s SASL) apply(sc *sarama.Config) {
	n := &sc.Net.SASL
	n.Enable = true
	n.Mechanism = sarama.SASLMechanism(s.Mechanism)
	n.User, n.Password = s.User, s.Password
	switch s.Mechanism {
	case sarama.SASLTypeSCRAMSHA256:
		n.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case sarama.SASLTypeSCRAMSHA512:
		n.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	}
}

// checkSecurity refuses what gives secrets away or trusts anybody (G-07). It looks at the final settings, however they
// were made.
func checkSecurity(sc *sarama.Config, allowInsecure bool) (problems []error) {
	if sc.Net.SASL.Enable && sc.Net.SASL.Mechanism == "" {
		problems = append(problems, errors.New("SASL: Mechanism is empty: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"))
	}
	if allowInsecure {
		return problems
	}
	if m := sc.Net.SASL.Mechanism; sc.Net.SASL.Enable && !sc.Net.TLS.Enable {
		switch m {
		case sarama.SASLTypePlaintext, sarama.SASLTypeOAuth:
			problems = append(problems, fmt.Errorf("SASL/%s without TLS sends the secret in the clear: set TLS, or AllowInsecure", m))
		case sarama.SASLTypeSCRAMSHA256, sarama.SASLTypeSCRAMSHA512:
			problems = append(problems, fmt.Errorf("SASL/%s without TLS lets listeners guess the password offline, and read and change "+
				"all records: set TLS, or AllowInsecure", m))
		}
	}
	if c := sc.Net.TLS.Config; sc.Net.TLS.Enable && c != nil {
		if c.InsecureSkipVerify {
			problems = append(problems, errors.New("TLS.InsecureSkipVerify trusts anybody: set RootCAs, or AllowInsecure"))
		}
		if c.MinVersion < tls.VersionTLS12 {
			problems = append(problems, errors.New("TLS.MinVersion below 1.2: raise it, or set AllowInsecure"))
		}
	}
	return problems
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
func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

// Done reports whether the conversation is over.
func (c *scramClient) Done() bool { return c.conversation.Done() }
