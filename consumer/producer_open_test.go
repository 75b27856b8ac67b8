package consumer

import (
	"bufio"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// TestOpenProducer_Settings_K35: the producer is safe by default, needs no group, and refuses
// settings that would lose or double messages.
func TestOpenProducer_Settings_K35(t *testing.T) {
	sc, err := producerConfig(Config{Brokers: []string{"x:1"}})
	require.NoError(t, err)
	require.True(t, sc.Producer.Idempotent)
	require.Equal(t, sarama.WaitForAll, sc.Producer.RequiredAcks)
	require.Equal(t, 1, sc.Net.MaxOpenRequests)
	require.False(t, sc.Metadata.AllowAutoTopicCreation)
	require.GreaterOrEqual(t, sc.Producer.Retry.Max, 10)
	require.Greater(t, sc.Net.ReadTimeout, sc.Producer.Timeout)
	require.Equal(t, "idem", sc.ClientID)

	for name, cfg := range map[string]Config{
		"Brokers":      {},
		"RequiredAcks": {Sarama: func(sc *sarama.Config) { sc.Producer.RequiredAcks = sarama.WaitForLocal }},
		"Successes":    {Sarama: func(sc *sarama.Config) { sc.Producer.Return.Successes = false }},
		"Idempotent":   {Sarama: func(sc *sarama.Config) { sc.Producer.Idempotent = false }},
		"Retry":        {Sarama: func(sc *sarama.Config) { sc.Producer.Retry.Max = 0 }},
		"ClientID":     {Sarama: func(sc *sarama.Config) { sc.ClientID = "sarama" }},
		"in the clear": {SASL: &SASL{Mechanism: "PLAIN", User: "a", Password: "hunter2"}},
		"Mechanism":    {SASL: &SASL{User: "a", Password: "hunter2"}},
	} {
		if name != "Brokers" {
			cfg.Brokers = []string{testenv.FreeAddr(t)}
		}
		_, err := OpenProducer(cfg)
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "hunter2")
	}
	began := time.Now()
	_, err = OpenProducer(Config{Brokers: []string{testenv.FreeAddr(t)}})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.Less(t, time.Since(began), 30*time.Second)
}

// TestPartitioner_GoldenVector_K35: a thousand keys of all kinds go where Kafka's own client puts
// them; testdata has the program that asked it.
func TestPartitioner_GoldenVector_K35(t *testing.T) {
	f, err := os.Open("testdata/murmur2.txt")
	require.NoError(t, err)
	defer f.Close()
	sc, err := producerConfig(Config{Brokers: []string{"x:1"}})
	require.NoError(t, err)
	p := sc.Producer.Partitioner("topic")
	keys := 0
	for lines := bufio.NewScanner(f); lines.Scan(); keys++ {
		fields := strings.Split(lines.Text(), " ")
		require.Len(t, fields, 3, lines.Text())
		key, err := hex.DecodeString(fields[0])
		require.NoError(t, err)
		want, err := strconv.ParseInt(fields[1], 10, 32)
		require.NoError(t, err)
		hash, err := strconv.ParseInt(fields[2], 10, 32)
		require.NoError(t, err)
		got, err := p.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, 12)
		require.NoError(t, err)
		require.EqualValues(t, want, got, lines.Text())
		all, err := p.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, 1<<31-1)
		require.NoError(t, err)
		require.EqualValues(t, hash&0x7fffffff%(1<<31-1), all, lines.Text())
	}
	require.Equal(t, 1000, keys)
}
