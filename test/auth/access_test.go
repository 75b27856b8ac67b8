package auth

import (
	"crypto/tls"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/kafkaauth"
)

// The mechanisms of SASL.
const (
	plain    = "PLAIN"
	scram256 = "SCRAM-SHA-256"
	scram512 = "SCRAM-SHA-512"
	bearer   = "OAUTHBEARER"
)

// access is how a client reaches the brokers, in the words of no client.
type access struct {
	brokers []string
	tls     *tls.Config
	// mechanism is empty if the certificate is the only credential.
	mechanism, user, password string
	token                     kafkaauth.TokenSource
}

// sarama returns the settings for package consumer.
func (a access) sarama() consumer.Config {
	cfg := consumer.Config{Brokers: a.brokers, TLS: a.tls}
	if a.mechanism != "" {
		cfg.SASL = &consumer.SASL{
			Mechanism: a.mechanism, User: a.user, Password: a.password, Token: a.token,
		}
	}
	return cfg
}
