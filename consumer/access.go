package consumer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// This file says what a client may do with topics, and which commands mend what is missing.

// askTopics asks a broker for topics, and for what this client may do with them. Without names it asks for all.
func askTopics(client sarama.Client, names []string) ([]*sarama.TopicMetadata, error) {
	ask := func(broker *sarama.Broker, err error) (*sarama.MetadataResponse, error) {
		if err != nil {
			return nil, err
		}
		request := sarama.NewMetadataRequest(client.Config().Version, names)
		request.IncludeTopicAuthorizedOperations = true
		return broker.GetMetadata(request)
	}
	answer, err := ask(client.Controller())
	if err != nil { // there may be another one
		answer, err = ask(client.RefreshController())
	}
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	return answer.Topics, nil
}

// Operations on topics.
const (
	opRead  = sarama.AclOperationRead
	opWrite = sarama.AclOperationWrite
)

// access is what a look at topics has found. All lists are sorted.
type access struct {
	missing []string // do not exist
	denied  []string // the client lacks a right
}

// accessOf sorts what cannot be used with all of ops. Another error is worth another look.
func accessOf(topics []*sarama.TopicMetadata, ops ...sarama.AclOperation) (a access, err error) {
	for _, t := range topics {
		switch {
		case errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition), errors.Is(t.Err, sarama.ErrInvalidTopic):
			a.missing = append(a.missing, t.Name)
		case errors.Is(t.Err, sarama.ErrTopicAuthorizationFailed), !may(t, ops...): // Describe is the right to know that it exists
			a.denied = append(a.denied, t.Name)
		case t.Err != sarama.ErrNoError && !errors.Is(t.Err, sarama.ErrLeaderNotAvailable):
			return access{}, fmt.Errorf("topic %s: %w", t.Name, t.Err)
		}
	}
	slices.Sort(a.missing)
	slices.Sort(a.denied)
	return a, nil
}

// may reports whether the client has all of ops on a topic that it may describe, as far as the broker says so: since Kafka 2.3.
func may(t *sarama.TopicMetadata, ops ...sarama.AclOperation) bool {
	has := func(op sarama.AclOperation) bool { return t.TopicAuthorizedOperations&(1<<uint(op)) != 0 }
	if !has(sarama.AclOperationDescribe) { // not told, since what could be described can be
		return true
	}
	return !slices.ContainsFunc(ops, func(op sarama.AclOperation) bool { return !has(op) })
}

// opNames are what kafka-acls calls them.
func opNames(ops []sarama.AclOperation) (names []string) {
	for _, op := range ops {
		names = append(names, map[sarama.AclOperation]string{opRead: "Read", opWrite: "Write"}[op])
	}
	return names
}

// bootstrap is the option by which Kafka's tools find these brokers.
func (c Config) bootstrap() string { return "--bootstrap-server " + strings.Join(c.Brokers, ",") }

// aclCommand gives this client rights on a topic or group.
func (c Config) aclCommand(kind, name string, ops ...string) string {
	principal := "User:<principal>" // of a certificate, as the brokers map it
	if c.SASL != nil {
		principal = "User:" + c.SASL.User
	}
	words := []string{"kafka-acls", c.bootstrap(), "--add --allow-principal", principal}
	for _, op := range ops {
		words = append(words, "--operation", op)
	}
	return strings.Join(append(words, "--"+kind, name), " ")
}

// topicACLs give this client rights on each of the topics.
func (c Config) topicACLs(topics []string, ops ...sarama.AclOperation) string {
	var all []string
	for _, t := range topics {
		all = append(all, c.aclCommand("topic", t, opNames(ops)...))
	}
	return strings.Join(all, "; ")
}

// groupACL gives this client the right to consume in its group.
func (c Config) groupACL() string { return c.aclCommand("group", c.Group, "Read") }

// checkGroup asks who coordinates the group, as sarama would: it asks for a long time before it says that it has no right to.
// What else is wrong, joining the group finds out.
func (c Config) checkGroup(client sarama.Client) error {
	broker, err := client.Controller()
	if err != nil {
		return err
	}
	answer, err := broker.FindCoordinator(&sarama.FindCoordinatorRequest{Version: 1, CoordinatorKey: c.Group, CoordinatorType: sarama.CoordinatorGroup})
	if err == nil && errors.Is(answer.Err, sarama.ErrGroupAuthorizationFailed) {
		return answer.Err
	}
	return nil
}

// createCommand creates a topic, in the shape of its source if that is known.
func (c Config) createCommand(topic string, source *sarama.TopicMetadata, settings ...string) string {
	words := []string{"kafka-topics", c.bootstrap(), "--create --topic", topic}
	if source != nil && len(source.Partitions) > 0 {
		words = append(words, "--partitions", strconv.Itoa(len(source.Partitions)), "--replication-factor", strconv.Itoa(len(source.Partitions[0].Replicas)))
	}
	for _, s := range settings {
		words = append(words, "--config", s)
	}
	return strings.Join(words, " ")
}

// createCommands create each of the topics.
func (c Config) createCommands(topics []string, sources map[string]*sarama.TopicMetadata, settings ...string) string {
	var all []string
	for _, t := range topics {
		all = append(all, c.createCommand(t, sources[t], settings...))
	}
	return strings.Join(all, "; ")
}

// Settings of the topics of a group, as commands have them.
const (
	settingDeadLetters = "retention.ms=-1"
	settingRetries     = "cleanup.policy=delete"
)

// deniedError says which rights on topics this client lacks.
func (c Config) deniedError(topics []string, ops ...sarama.AclOperation) error {
	return fmt.Errorf("%w: no right to %s %s: grant it: %s", ErrUnauthorized, strings.ToLower(strings.Join(opNames(ops), " and ")),
		strings.Join(topics, ", "), c.topicACLs(topics, ops...))
}

// explain adds to an error of the group the command that mends it.
func (c Config) explain(err error) error {
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return fmt.Errorf("no right to read group %s: grant it: %s: %w", c.Group, c.groupACL(), err)
	}
	return err
}

// setupError names what the topics of dead letters lack, if that is what err says. It waits like an outage and is told again and
// again, since only a person mends it.
func (c Config) setupError(err error, msgs []*idem.Message) error {
	var topics []string
	for _, m := range msgs {
		topics = append(topics, m.Topic)
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	names := strings.Join(topics, ", ")
	switch {
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return &dedup.SetupError{Problem: "no right to write to " + names, Fix: "grant it: " + c.topicACLs(topics, opWrite), Err: err}
	case errors.Is(err, idem.ErrNoTopic):
		var all []string
		for _, t := range topics {
			setting := settingDeadLetters
			if isRetryTopic(t, c.Group) {
				setting = settingRetries
			}
			all = append(all, c.createCommand(t, nil, setting))
		}
		return &dedup.SetupError{Problem: "a topic of " + names + " does not exist", Fix: "create it: " + strings.Join(all, "; "), Err: err}
	}
	return err
}
