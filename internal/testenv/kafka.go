package testenv

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

// Kafka returns the brokers in KAFKA_BROKERS, a list separated by commas. Without the variable the
// test is skipped, or fails if IDEM_REQUIRE_SERVICES is set.
func Kafka(t testing.TB) []string {
	t.Helper()
	return strings.Split(service(t, "KAFKA_BROKERS"), ",")
}

// KafkaConfig returns settings of sarama for the clients of a test. They wait for all replicas and
// create no topics.
func KafkaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "idem-test"
	c.Metadata.AllowAutoTopicCreation = false
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Return.Errors = true
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	return c
}

// KafkaAdmin returns an admin client of the brokers, closed in Cleanup.
func KafkaAdmin(t testing.TB, brokers []string) sarama.ClusterAdmin {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(brokers, KafkaConfig())
	require.NoError(t, err, "brokers %v", brokers)
	t.Cleanup(func() { _ = admin.Close() })
	return admin
}

// createTopic creates a topic. A controller that has missed the heartbeats of the broker places no
// partition on it, until the next heartbeat: it is asked again for half a minute.
func createTopic(
	t testing.TB, admin sarama.ClusterAdmin, name string, detail *sarama.TopicDetail,
) {
	t.Helper()
	for began := time.Now(); ; <-time.After(100 * time.Millisecond) {
		err := admin.CreateTopic(name, detail, false)
		fenced := errors.Is(err, sarama.ErrInvalidReplicationFactor)
		if fenced && time.Since(began) < 30*time.Second {
			continue
		}
		require.NoError(t, err)
		return
	}
}

// CreateTopic creates a topic with a new name, and returns the name. settings are optional, such as
// "cleanup.policy". Cleanup deletes the topic and all topics with names that begin like this one,
// such as dead-letter topics.
func CreateTopic(
	t testing.TB, brokers []string, partitions int32, settings ...map[string]string,
) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text()[:16])
	entries := make(map[string]*string)
	for _, s := range settings {
		for k, v := range s {
			entries[k] = &v
		}
	}
	client, err := sarama.NewClient(brokers, KafkaConfig())
	require.NoError(t, err, "brokers %v", brokers)
	admin, err := sarama.NewClusterAdminFromClient(client)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() }) // and the client
	detail := &sarama.TopicDetail{
		NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: entries,
	}
	createTopic(t, admin, name, detail)
	WaitTopic(t, client, name, partitions)
	t.Cleanup(func() { // before the admin is closed
		topics, err := admin.ListTopics()
		if err != nil {
			t.Logf("topics of the test stay: %v", err)
			return
		}
		for topic := range topics {
			if strings.HasPrefix(topic, name) {
				_ = admin.DeleteTopic(topic)
			}
		}
	})
	return name
}

// WaitTopic waits until a new topic can be used. A busy broker knows a topic, and has its log, some
// time after it has acknowledged its creation.
func WaitTopic(t testing.TB, client sarama.Client, topic string, partitions int32) {
	t.Helper()
	usable := func() bool {
		if client.RefreshMetadata(topic) != nil {
			return false
		}
		for p := range partitions {
			if _, err := client.GetOffset(topic, p, sarama.OffsetNewest); err != nil {
				return false
			}
		}
		return true
	}
	if !usable() {
		require.Eventually(t, usable, 30*time.Second, 20*time.Millisecond, "topic %s cannot be used", topic)
	}
}
