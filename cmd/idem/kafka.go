package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/bootstrap"
	"github.com/idem-go/idem/internal/kafkalog"
	"github.com/idem-go/idem/kafkaauth"
)

// kafkaAccess is how brokers are reached, with the rules of consumers about secrets (G-07).
func (a *app) kafkaAccess(clientID string) (cfg consumer.Config, err error) {
	if len(a.brokers) == 0 {
		return cfg, usage("no brokers: give --brokers")
	}
	cfg = consumer.Config{Brokers: a.brokers, ClientID: clientID, AllowInsecure: a.allowInsecure}
	if cfg.TLS, err = a.tlsConfig(); err != nil {
		return cfg, err
	}
	cfg.SASL, err = a.sasl()
	return cfg, err
}

// kafkaConfig is the setting of the connections to Kafka that a person's command makes.
func (a *app) kafkaConfig() (*sarama.Config, error) {
	cfg, err := a.kafkaAccess("idem-cli")
	if err != nil {
		return nil, err
	}
	cfg.Group, cfg.Topics = cmp.Or(a.group, "idem"), []string{"unused"}
	sc, err := consumer.DefaultSaramaConfig(cfg)
	if err != nil {
		return nil, usage("%v (of this command: --tls, --allow-insecure)", err)
	}
	// A person waits, and no session has to be kept. If the only broker of a list accepts
	// connections and never answers, sarama waits for three answers. Then it sees that the metadata
	// are too late.
	wait := cmp.Or(a.kafkaWait, kafkaWait)
	sc.Net.DialTimeout, sc.Net.ReadTimeout, sc.Net.WriteTimeout = wait, wait, wait
	sc.Metadata.Retry.Max, sc.Metadata.Timeout = 3, wait+wait/4
	return sc, nil
}

// kafkaWait bounds each answer of a broker to a person's command.
const kafkaWait = 8 * time.Second

func (a *app) tlsConfig() (*tls.Config, error) {
	if !a.tls && a.tlsCA == "" && a.tlsCert == "" && a.tlsKey == "" {
		return nil, nil //nolint:nilnil // no TLS
	}
	if (a.tlsCert == "") != (a.tlsKey == "") {
		return nil, usage("--tls-cert and --tls-key belong together")
	}
	// A relay runs for longer than its certificate is good for.
	files := kafkaauth.TLSFiles{CA: a.tlsCA, Cert: a.tlsCert, Key: a.tlsKey, Logger: a.logger()}
	cfg, err := files.Config()
	if err != nil {
		return nil, usage("--tls-ca, --tls-cert, --tls-key: %w", err)
	}
	return cfg, nil
}

func (a *app) sasl() (*consumer.SASL, error) {
	password := os.Getenv("IDEM_SASL_PASSWORD")
	switch {
	case a.saslMechanism == "":
		return nil, nil //nolint:nilnil // no SASL, even with a password in the environment
	case a.saslMechanism == sarama.SASLTypeOAuth:
		source, err := a.tokenSource()
		if err != nil {
			return nil, err
		}
		return &consumer.SASL{Mechanism: a.saslMechanism, User: a.saslUser, Token: source}, nil
	case a.saslUser == "":
		return nil, usage("--sasl-mechanism without a user: give --sasl-user")
	case password == "":
		return nil, usage(
			"no password for %q: set IDEM_SASL_PASSWORD (a flag would show the password to every "+
				"user of the host)",
			a.saslUser,
		)
	}
	a.secrets.Add(password)
	return &consumer.SASL{Mechanism: a.saslMechanism, User: a.saslUser, Password: password}, nil
}

// kafka connects to the brokers, until the end of the command. The end of ctx interrupts the call,
// and not the client.
func (a *app) kafka(ctx context.Context) (sarama.Client, error) {
	cfg, err := a.kafkaConfig()
	if err != nil {
		return nil, err
	}
	client, err := bootstrap.Client(ctx, a.brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("kafka %s: %w", strings.Join(a.brokers, ","), err)
	}
	a.closers = append(a.closers, func() { _ = client.Close() })
	return client, nil
}

// firstTime returns the time of the first record of a span, or nil.
func firstTime(
	ctx context.Context, client sarama.Client, s kafkalog.Span,
) (first *time.Time, err error) {
	_, err = kafkalog.Read(ctx, client, s, func(m *idem.Message) (bool, error) {
		t := m.Time.UTC()
		first = &t
		return false, nil
	})
	return first, err
}

// lastTime returns the time of the last record before the end of s, or nil. It reads backwards in
// windows. searched is false if the record was not found in the offsets that the windows cover, and
// s begins before them.
func lastTime(
	ctx context.Context, client sarama.Client, s kafkalog.Span,
) (last *time.Time, searched bool, err error) {
	below := s.End
	for w := range windows(s) {
		_, err := kafkalog.Read(ctx, client, w, func(m *idem.Message) (bool, error) {
			last = &m.Time
			return true, nil
		})
		if err != nil || last != nil {
			return last, true, err
		}
		below = w.Begin
	}
	return nil, below <= s.Begin, nil
}

// The mark of a transaction has an offset too. The records of an aborted transaction, and those
// that were compacted away, have offsets without a record that can be read.
const (
	firstWindow = 16
	mostOffsets = 1 << 20 // of all windows
)

// windows cuts the end of a span into windows, the last first. Each is longer than the one before.
func windows(s kafkalog.Span) iter.Seq[kafkalog.Span] {
	return func(yield func(kafkalog.Span) bool) {
		w := s
		for back := int64(firstWindow); w.End > s.Begin && back <= mostOffsets; back *= 16 {
			w.Begin = max(s.Begin, s.End-back)
			if !yield(w) {
				return
			}
			w.End = w.Begin
		}
	}
}
