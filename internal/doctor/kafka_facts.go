package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/IBM/sarama"
)

// kafkaDoctor examines one cluster.
type kafkaDoctor struct {
	*examination
	client  sarama.Client
	admin   sarama.ClusterAdmin
	servers []string // the addresses in remedies
	brokers int
	there   map[string][]int32 // the partitions of the sources that exist
}

// topicFacts is the state of a topic.
type topicFacts struct {
	name       string
	exists     bool
	partitions []int32
	replicas   int // of the partition with the fewest
	config     settings
	err        error // why a part is not known
}

// answers reads all topics and brokers anew, because the client may be old.
func answers(client sarama.Client) error {
	err := client.RefreshMetadata()
	switch {
	case errors.Is(err, sarama.ErrOutOfBrokers), errors.Is(err, sarama.ErrClosedClient):
		return err
	case len(client.Brokers()) == 0:
		return cmp.Or(err, sarama.ErrOutOfBrokers)
	}
	return nil // any other error is of a single topic, such as one without a leader
}

// addresses returns the addresses of brokers, in the order of their IDs.
func addresses(brokers []*sarama.Broker) (all []string) {
	slices.SortFunc(brokers, func(a, b *sarama.Broker) int { return cmp.Compare(a.ID(), b.ID()) })
	for _, b := range brokers {
		all = append(all, b.Addr())
	}
	return all
}

// denied reports whether a right is missing.
func denied(err error) bool {
	for _, e := range []error{
		sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed,
		sarama.ErrClusterAuthorizationFailed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// blind reports that a check could not be made (rule 46). If a right is missing, the remedy grants
// the right.
func (k *kafkaDoctor) blind(r *Findings, id, on string, err error, operation, resource string) {
	remedy := ""
	if denied(err) {
		remedy = k.tool("kafka-acls.sh", "--add --allow-principal User:<user> --operation %s %s",
			operation, resource)
	}
	r.say(Unknown, id, on, "not known: "+k.text(err), remedy)
}

// tool returns the command line of one of Kafka's own tools.
func (k *kafkaDoctor) tool(name, format string, args ...any) string {
	return name + " --bootstrap-server " + k.servers[0] + " " + fmt.Sprintf(format, args...)
}

// set returns the command that changes a setting of a topic.
func (k *kafkaDoctor) set(topic, setting string) string {
	return k.tool("kafka-configs.sh", "--alter --topic %s --add-config %s", topic, setting)
}

// describe returns the settings of resources of one kind. After an error no setting is known.
func (k *kafkaDoctor) describe(
	kind sarama.ConfigResourceType, names ...string,
) (map[string]settings, error) {
	var resources []*sarama.ConfigResource
	for _, name := range names {
		resources = append(resources, &sarama.ConfigResource{Type: kind, Name: name})
	}
	results, err := k.admin.DescribeConfigs(resources, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, err
	}
	all := make(map[string]settings, len(results))
	var errs error
	for _, result := range results {
		if !errors.Is(result.ErrorCode, sarama.ErrNoError) {
			errs = cmp.Or(errs, error(result.ErrorCode))
			continue
		}
		s := make(settings, len(result.Configs))
		for _, c := range result.Configs {
			s[c.Name] = c.Value
		}
		all[result.Name] = s
	}
	if len(all) == 0 && errs != nil {
		return nil, errs
	}
	return all, nil
}

// facts returns the state of topics, also of those that do not exist.
func (k *kafkaDoctor) facts(names []string) (map[string]*topicFacts, error) {
	all := make(map[string]*topicFacts, len(names))
	described, err := k.admin.DescribeTopics(names)
	if err != nil {
		return nil, err
	}
	var there []string
	for _, t := range described {
		f := &topicFacts{name: t.Name}
		all[t.Name] = f
		switch {
		case errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition),
			errors.Is(t.Err, sarama.ErrInvalidTopic):
			continue
		case !errors.Is(t.Err, sarama.ErrNoError) &&
			!errors.Is(t.Err, sarama.ErrLeaderNotAvailable):
			f.err = t.Err
			continue
		}
		f.exists, f.replicas = true, math.MaxInt
		there = append(there, t.Name)
		for _, p := range t.Partitions {
			f.partitions = append(f.partitions, p.ID)
			f.replicas = min(f.replicas, len(p.Replicas))
		}
		slices.Sort(f.partitions)
	}
	if len(there) == 0 {
		return all, nil
	}
	configs, err := k.describe(sarama.TopicResource, there...)
	for _, name := range there {
		if all[name].config = configs[name]; all[name].config == nil {
			all[name].err = cmp.Or(err, error(sarama.ErrTopicAuthorizationFailed))
		}
	}
	return all, nil
}

// legalTopic matches the legal names of topics.
var legalTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
