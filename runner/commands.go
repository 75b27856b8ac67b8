package runner

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// Settings of the topics of a group, as kafka-topics takes them.
const (
	DeadLetterSetting = "retention.ms=-1"
	RetrySetting      = "cleanup.policy=delete"
)

// Commands makes the commands of Kafka's tools that create missing topics and grant missing rights.
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
func (c Commands) GrantTopics(topics []string, ops Operations) string {
	var all []string
	for _, t := range topics {
		all = append(all, c.Grant("topic", t, ops.names()...))
	}
	return strings.Join(all, "; ")
}

// names returns the operations as kafka-acls names them.
func (o Operations) names() (names []string) {
	for _, known := range []struct {
		op   Operations
		name string
	}{{OpDescribe, "Describe"}, {OpRead, "Read"}, {OpWrite, "Write"}} {
		if o&known.op != 0 {
			names = append(names, known.name)
		}
	}
	return names
}

// Create returns the command that creates a topic, with the partitions and replicas of its source
// if that is known.
func (c Commands) Create(topic string, source *TopicInfo, settings ...string) string {
	words := []string{"kafka-topics", c.bootstrap(), "--create --topic", topic}
	if source != nil && len(source.Partitions) > 0 {
		words = append(words, "--partitions", strconv.Itoa(len(source.Partitions)),
			"--replication-factor", strconv.Itoa(int(source.Replicas)))
	}
	for _, s := range settings {
		words = append(words, "--config", s)
	}
	return strings.Join(words, " ")
}

// CreateAll returns the commands that create topics.
func (c Commands) CreateAll(
	topics []string, sources map[string]*TopicInfo, settings ...string,
) string {
	var all []string
	for _, t := range topics {
		all = append(all, c.Create(t, sources[t], settings...))
	}
	return strings.Join(all, "; ")
}

// DeniedError returns an error that matches ErrUnauthorized and names the missing rights on topics.
func (c Commands) DeniedError(topics []string, ops Operations) error {
	rights := strings.ToLower(strings.Join(ops.names(), " and "))
	return fmt.Errorf("%w: no right to %s %s: grant it: %s",
		ErrUnauthorized, rights, strings.Join(topics, ", "), c.GrantTopics(topics, ops))
}

// ExplainGroup adds the remedy to an error about rights on the group.
func (c Commands) ExplainGroup(err error, class Class) error {
	if class == DeniedGroup {
		grant := c.Grant("group", c.Group, "Read")
		return fmt.Errorf("no right to read group %s: grant it: %s: %w", c.Group, grant, err)
	}
	return err
}

// ExplainProduce returns a [dedup.SetupError] for missing topics of dead letters or copies, and for
// topics that must not be written to. Callers wait as in an outage and repeat the report, because
// only a person can solve the problem. Other errors are returned unchanged.
func (c Commands) ExplainProduce(err error, class Class, msgs []*idem.Message) error {
	var topics []string
	for _, m := range msgs {
		topics = append(topics, m.Topic)
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	names := strings.Join(topics, ", ")
	switch {
	case class == DeniedTopic:
		return &dedup.SetupError{
			Problem: "no right to write to " + names,
			Fix:     "grant it: " + c.GrantTopics(topics, OpWrite), Err: err,
		}
	case errors.Is(err, idem.ErrNoTopic):
		var all []string
		for _, t := range topics {
			setting := DeadLetterSetting
			if IsRetry(t, c.Group) {
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
