package topicadmin

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/runner"
)

// Settings of the topics of a group, as kafka-topics takes them.
const (
	DeadLetterSetting = "retention.ms=-1"
	RetrySetting      = "cleanup.policy=delete"
)

// Commands makes the commands of Kafka's tools that mend missing topics and rights.
type Commands struct {
	Brokers []string
	Group   string
	User    string // of SASL; empty: the principal comes from a certificate
}

// bootstrap is the option by which Kafka's tools find the brokers.
func (c Commands) bootstrap() string {
	return "--bootstrap-server " + strings.Join(c.Brokers, ",")
}

// Grant returns the command that gives this client rights on a topic or group.
func (c Commands) Grant(kind, name string, ops ...string) string {
	principal := "User:<principal>" // the brokers map a certificate to it
	if c.User != "" {
		principal = "User:" + c.User
	}
	words := []string{"kafka-acls", c.bootstrap(), "--add --allow-principal", principal}
	for _, op := range ops {
		words = append(words, "--operation", op)
	}
	return strings.Join(append(words, "--"+kind, name), " ")
}

// GrantTopics returns the commands that give this client rights on topics.
func (c Commands) GrantTopics(topics []string, ops ...sarama.AclOperation) string {
	var all []string
	for _, t := range topics {
		all = append(all, c.Grant("topic", t, opNames(ops)...))
	}
	return strings.Join(all, "; ")
}

// opNames returns the operations as kafka-acls names them.
func opNames(ops []sarama.AclOperation) (names []string) {
	for _, op := range ops {
		names = append(names, map[sarama.AclOperation]string{OpRead: "Read", OpWrite: "Write"}[op])
	}
	return names
}

// Create returns the command that creates a topic, with the partitions and replicas of its source
// if that is known.
func (c Commands) Create(topic string, source *sarama.TopicMetadata, settings ...string) string {
	words := []string{"kafka-topics", c.bootstrap(), "--create --topic", topic}
	if source != nil && len(source.Partitions) > 0 {
		words = append(words, "--partitions", strconv.Itoa(len(source.Partitions)),
			"--replication-factor", strconv.Itoa(len(source.Partitions[0].Replicas)))
	}
	for _, s := range settings {
		words = append(words, "--config", s)
	}
	return strings.Join(words, " ")
}

// CreateAll returns the commands that create topics.
func (c Commands) CreateAll(
	topics []string, sources map[string]*sarama.TopicMetadata, settings ...string,
) string {
	var all []string
	for _, t := range topics {
		all = append(all, c.Create(t, sources[t], settings...))
	}
	return strings.Join(all, "; ")
}

// DeniedError returns an error that matches runner.ErrUnauthorized and names the missing rights on topics.
func (c Commands) DeniedError(topics []string, ops ...sarama.AclOperation) error {
	rights := strings.ToLower(strings.Join(opNames(ops), " and "))
	return fmt.Errorf("%w: no right to %s %s: grant it: %s",
		runner.ErrUnauthorized, rights, strings.Join(topics, ", "), c.GrantTopics(topics, ops...))
}

// ExplainGroup adds the remedy to an error about rights on the group.
func (c Commands) ExplainGroup(err error) error {
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		grant := c.Grant("group", c.Group, "Read")
		return fmt.Errorf("no right to read group %s: grant it: %s: %w", c.Group, grant, err)
	}
	return err
}

// ExplainProduce returns a [dedup.SetupError] for missing topics of dead letters or copies, and for
// topics that must not be written to. Callers wait as in an outage and repeat the report, because
// only a person can mend the problem.
func (c Commands) ExplainProduce(err error, msgs []*idem.Message) error {
	var topics []string
	for _, m := range msgs {
		topics = append(topics, m.Topic)
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	names := strings.Join(topics, ", ")
	switch {
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return &dedup.SetupError{
			Problem: "no right to write to " + names,
			Fix:     "grant it: " + c.GrantTopics(topics, OpWrite), Err: err,
		}
	case errors.Is(err, idem.ErrNoTopic):
		var all []string
		for _, t := range topics {
			setting := DeadLetterSetting
			if runner.IsRetry(t, c.Group) {
				setting = RetrySetting
			}
			all = append(all, c.Create(t, nil, setting))
		}
		return &dedup.SetupError{
			Problem: "a topic of " + names + " does not exist",
			Fix:     "create it: " + strings.Join(all, "; "), Err: err,
		}
	}
	return err
}
