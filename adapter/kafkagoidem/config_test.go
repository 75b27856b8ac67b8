package kafkagoidem

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/stretchr/testify/require"
)

// TestConfig: New refuses settings that lose events or reveal secrets, and names the field (G-07).
func TestConfig(t *testing.T) {
	secret := plain.Mechanism{Username: "u", Password: "secret"}
	for name, c := range map[string]struct {
		change func(*Config)
		text   string // empty: accepted
	}{
		"as it is":          {func(*Config) {}, ""},
		"no brokers":        {func(c *Config) { c.Brokers = nil }, "Brokers is empty"},
		"no group":          {func(c *Config) { c.Group = "" }, "Group is empty"},
		"short session":     {func(c *Config) { c.SessionTimeout = time.Second }, "SessionTimeout is 1s"},
		"rare heartbeats":   {func(c *Config) { c.Heartbeat = 5 * time.Second }, "Heartbeat is 5s"},
		"long grace":        {func(c *Config) { c.Grace = 41 * time.Second }, "Grace 41s"},
		"open password":     {func(c *Config) { c.SASL = secret }, "SASL/PLAIN without TLS"},
		"accepted password": {func(c *Config) { c.SASL, c.AllowInsecure = secret, true }, ""},
		"password over TLS": {func(c *Config) { c.SASL, c.TLS = secret, new(tls.Config) }, ""},
		"any server": {func(c *Config) {
			c.TLS = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // to be refused
		}, "InsecureSkipVerify"},
		"old TLS": {func(c *Config) {
			c.TLS = &tls.Config{MinVersion: tls.VersionTLS11} //nolint:gosec // to be refused
		}, "below 1.2"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configFor([]string{"localhost:1"}, "orders")
			cfg.Store = forever()
			c.change(&cfg)
			require.NotContains(t, cfg.String(), "secret")
			_, err := New(cfg, routed(new(tally).handle))
			if c.text == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.text)
			}
		})
	}
}
