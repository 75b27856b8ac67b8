package kgoidem

import (
	"context"
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/idem-go/idem/dedup/memstore"
)

func good() Config {
	return Config{Brokers: []string{"x:1"}, Group: "g", Topics: []string{"t"}, Store: forever()}
}

// TestNew_Mistakes: each mistake is named, and no secret is.
func TestNew_Mistakes(t *testing.T) {
	secret := []sasl.Mechanism{plain.Auth{User: "a", Pass: "hunter2"}.AsMechanism()}
	for want, change := range map[string]func(*Config){
		"Brokers":        func(c *Config) { c.Brokers = nil },
		"Group":          func(c *Config) { c.Group = "" },
		"Topics":         func(c *Config) { c.Topics = nil },
		"Lanes":          func(c *Config) { c.Lanes = 1000 },
		"Protocol":       func(c *Config) { c.Protocol = 9 },
		"two thirds":     func(c *Config) { c.Grace = 50 * time.Second },
		"SASL/PLAIN":     func(c *Config) { c.SASL = secret },
		"trusts any":     func(c *Config) { c.TLS = &tls.Config{InsecureSkipVerify: true} },
		"below 1.2":      func(c *Config) { c.TLS = &tls.Config{MinVersion: tls.VersionTLS10} },
		"dlq":            func(c *Config) { c.Topics = []string{"t", "t.g.dlq"} },
		"retry topic":    func(c *Config) { c.Topics = []string{"t", "t.g.retry"} },
		"*memstore":      func(c *Config) { c.Store = memstore.New() },
		"OnGap":          func(c *Config) { c.OnGap = 9 },
		"negative":       func(c *Config) { c.Grace = -1 },
		"kgo.InstanceID": func(c *Config) { c.Options = []kgo.Opt{kgo.InstanceID("x")} },
	} {
		cfg := good()
		change(&cfg)
		_, err := New(cfg, routed(new(tally).handle))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg), "hunter2")
	}
	cfg := good()
	cfg.TLS, cfg.SASL = new(tls.Config), secret
	r, err := New(cfg, routed(new(tally).handle))
	require.NoError(t, err)
	require.NoError(t, r.Live())
	require.NoError(t, r.group.Close())
}

// TestOptions_Protected: no option can take away a guarantee or a callback.
func TestOptions_Protected(t *testing.T) {
	for name, opt := range map[string]kgo.Opt{
		"ConsumerGroup":             kgo.ConsumerGroup("other"),
		"ConsumeTopics":             kgo.ConsumeTopics("other"),
		"Balancers":                 kgo.Balancers(kgo.RoundRobinBalancer()),
		"ServerSideBalancer":        kgo.ServerSideBalancer(),
		"ConsumeStartOffset":        kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()),
		"ConsumeResetOffset":        kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		"FetchIsolationLevel":       kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		"DisableFetchCRCValidation": kgo.DisableFetchCRCValidation(),
		"RebalanceTimeout":          kgo.RebalanceTimeout(time.Second),
		"BlockRebalanceOnPoll":      kgo.BlockRebalanceOnPoll(),
		"AllowAutoTopicCreation":    kgo.AllowAutoTopicCreation(),
		"RequiredAcks":              kgo.RequiredAcks(kgo.LeaderAck()),
		"TransactionalID":           kgo.TransactionalID("x"),
		"OnPartitionsRevoked":       kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {}),
		"OnPartitionsLost":          kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) {}),
		"OnPartitionsAssigned":      kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {}),
		"OnOffsetsFetched":          kgo.OnOffsetsFetched(func(context.Context, *kgo.Client, *kmsg.OffsetFetchResponse) error { return nil }),
		"AdjustFetchOffsetsFn": kgo.AdjustFetchOffsetsFn(func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return nil, nil
		}),
	} {
		cfg := good()
		cfg.Options = []kgo.Opt{opt}
		_, err := New(cfg, routed(new(tally).handle))
		require.ErrorContains(t, err, "Config.Options", name)
		require.Contains(t, protected, name)
	}
	cfg := good()
	cfg.Options = append(quick(), kgo.Rack("a"), kgo.FetchMaxBytes(1<<20))
	r, err := New(cfg, routed(new(tally).handle))
	require.NoError(t, err)
	require.NoError(t, r.group.Close())
}

// TestDefaults_K17_K30_K35 reads the settings that a member and the producer have.
func TestDefaults_K17_K30_K35(t *testing.T) {
	s := newSettings(good())
	for protocol, balancer := range map[Protocol]string{
		Cooperative: "cooperative-sticky", Eager: "range", NextGeneration: "range",
	} {
		s.client.Protocol = protocol
		cl := clientOf(t, s.client.Brokers, s.consuming(s.Topics)...)
		require.Equal(t, true, cl.OptValue(kgo.DisableAutoCommit))
		require.Equal(t, onlyCommitted, cl.OptValue(kgo.FetchIsolationLevel))
		require.Equal(t, kgo.NoResetOffset(), cl.OptValue(kgo.ConsumeResetOffset))
		require.Equal(t, kgo.NewOffset().AtStart(), cl.OptValue(kgo.ConsumeStartOffset))
		require.Equal(t, false, cl.OptValue(kgo.DisableFetchCRCValidation))
		require.Equal(t, false, cl.OptValue(kgo.AllowAutoTopicCreation))
		require.Equal(t, true, cl.OptValue(kgo.KeepControlRecords))
		require.Equal(t, protocol == NextGeneration, cl.OptValue(kgo.ServerSideBalancer))
		balancers, ok := cl.OptValue(kgo.Balancers).([]kgo.GroupBalancer)
		require.True(t, ok)
		require.Len(t, balancers, 1)
		require.Equal(t, balancer, balancers[0].ProtocolName())
	}
	p := clientOf(t, s.client.Brokers, s.plain()...)
	require.Equal(t, kgo.AllISRAcks(), p.OptValue(kgo.RequiredAcks))
	require.Equal(t, false, p.OptValue(kgo.DisableIdempotentWrite))
	require.Equal(t, false, p.OptValue(kgo.AllowAutoTopicCreation))
}
