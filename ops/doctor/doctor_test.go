package doctor_test

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/ops"
	"github.com/idem-go/idem/ops/doctor"
)

func verdicts(found []ops.Finding) map[string]string {
	all := map[string]string{}
	for _, f := range found { // of several with one name, the worst
		if all[f.ID] != "bad" {
			all[f.ID] = f.Verdict
		}
	}
	return all
}

func TestNew(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	defer cluster.Close()
	cfg := consumer.Config{Brokers: cluster.ListenAddrs(), Group: "billing", Topics: []string{"orders", "missing"}, Grace: time.Second}

	found, err := doctor.New(doctor.Config{Consumer: cfg, Memory: true})(t.Context())
	require.NoError(t, err)
	got := verdicts(found)
	require.Equal(t, "ok", got["kafka.connect"])
	require.Equal(t, "bad", got["settings.store.volatile"])
	require.Equal(t, "bad", got["kafka.topic.missing"])
	require.NotEqual(t, "ok", got["settings.deadline"], "the settings are those of the configuration")

	sc, err := consumer.DefaultSaramaConfig(cfg)
	require.NoError(t, err)
	client, err := sarama.NewClient(cfg.Brokers, sc)
	require.NoError(t, err)
	defer client.Close()
	examine := doctor.New(doctor.Config{Consumer: cfg, Client: client})
	for range 2 {
		found, err = examine(t.Context())
		require.NoError(t, err)
		require.Equal(t, "ok", verdicts(found)["kafka.connect"])
	}
	require.False(t, client.Closed(), "it is not ours")

	cfg.Brokers = []string{"127.0.0.1:1"}
	found, err = doctor.New(doctor.Config{Consumer: cfg})(t.Context())
	require.NoError(t, err)
	require.Equal(t, "bad", verdicts(found)["kafka.connect"])

	ended, end := context.WithCancel(t.Context())
	end()
	cfg.Brokers = cluster.ListenAddrs()
	_, err = doctor.New(doctor.Config{Consumer: cfg})(ended)
	require.ErrorIs(t, err, context.Canceled)
}
