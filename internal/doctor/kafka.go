package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// kafkaDoctor looks at one cluster.
type kafkaDoctor struct {
	*examination
	client  sarama.Client
	admin   sarama.ClusterAdmin
	servers []string // for advice
	brokers int
	sources []string
	there   map[string][]int32 // the partitions of those that exist
}

// topicFacts are what is known of a topic.
type topicFacts struct {
	name       string
	exists     bool
	partitions []int32
	replicas   int // of the partition that has the fewest
	config     settings
	err        error // why something is not known
}

// settings of a topic or a broker by name. What is not there is not known.
type settings map[string]string

// millis reads a duration in milliseconds. What is longer than a Duration can be is forever, and so is -1.
func (s settings) millis(name string) (d time.Duration, forever, known bool) {
	n, err := strconv.ParseInt(s[name], 10, 64)
	switch {
	case err != nil:
		return 0, false, false
	case n < 0 || n > math.MaxInt64/int64(time.Millisecond):
		return 0, true, true
	}
	return time.Duration(n) * time.Millisecond, false, true
}

func (s settings) number(name string) (n int64, known bool) {
	n, err := strconv.ParseInt(s[name], 10, 64)
	return n, err == nil
}

// checkKafka looks at the cluster. Its error says that ctx ended.
func (d *examination) checkKafka(ctx context.Context, r *Findings) error {
	if d.in.Kafka == nil {
		r.say(Skipped, "kafka.connect", "", "no --brokers", "")
		return nil
	}
	client, err := d.in.Kafka()
	var admin sarama.ClusterAdmin
	if err == nil {
		admin, err = sarama.NewClusterAdminFromClient(client) // closed with the client
	}
	if err == nil {
		if sasl := client.Config().Net.SASL; sasl.Enable {
			d.secrets.Add(sasl.Password)
		}
		err = answers(client)
	}
	if err != nil {
		r.say(Bad, "kafka.connect", strings.Join(d.in.Brokers, ","), d.text(err), "")
		return nil
	}
	k := &kafkaDoctor{examination: d, client: client, admin: admin, servers: d.in.Brokers, brokers: len(client.Brokers())}
	if len(k.servers) == 0 {
		k.servers = addresses(client.Brokers())
	}
	r.say(OK, "kafka.connect", strings.Join(k.servers, ","), fmt.Sprintf("%d brokers", k.brokers), "")
	for _, check := range []func(*Findings){k.checkBrokers, k.findSources, k.checkTopics, k.checkGroup, k.checkOffsets} {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		check(r)
	}
	return nil
}

// answers asks for all topics and brokers: a client may have lived long.
func answers(client sarama.Client) error {
	err := client.RefreshMetadata()
	switch {
	case errors.Is(err, sarama.ErrOutOfBrokers), errors.Is(err, sarama.ErrClosedClient):
		return err
	case len(client.Brokers()) == 0:
		return cmp.Or(err, sarama.ErrOutOfBrokers)
	}
	return nil // else some topic of somebody's has no leader
}

// addresses are those of brokers, in the order of their numbers.
func addresses(brokers []*sarama.Broker) (all []string) {
	slices.SortFunc(brokers, func(a, b *sarama.Broker) int { return cmp.Compare(a.ID(), b.ID()) })
	for _, b := range brokers {
		all = append(all, b.Addr())
	}
	return all
}

// denied reports whether the broker refuses to tell, for want of a right.
func denied(err error) bool {
	for _, e := range []error{sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed, sarama.ErrClusterAuthorizationFailed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// blind says that a check could not be made: a warning, with the right to grant if that is what is missing (rule 46).
func (k *kafkaDoctor) blind(r *Findings, id, on string, err error, operation, resource string) {
	remedy := ""
	if denied(err) {
		remedy = fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal User:<user> --operation %s %s", k.servers[0], operation, resource)
	}
	r.say(Unknown, id, on, "not known: "+k.text(err), remedy)
}

// tool is the command line of one of Kafka's own tools.
func (k *kafkaDoctor) tool(name, format string, args ...any) string {
	return name + " --bootstrap-server " + k.servers[0] + " " + fmt.Sprintf(format, args...)
}

// set is the command that changes a setting of a topic.
func (k *kafkaDoctor) set(topic, setting string) string {
	return k.tool("kafka-configs.sh", "--alter --topic %s --add-config %s", topic, setting)
}

// checkBrokers looks at what is the same for all topics.
func (k *kafkaDoctor) checkBrokers(r *Findings) {
	broker := strconv.Itoa(int(k.client.Brokers()[0].ID()))
	config, err := k.describe(sarama.BrokerResource, broker)
	on := "broker " + broker
	if err != nil {
		k.blind(r, "kafka.rights", on, err, "DescribeConfigs", "--cluster")
		return
	}
	c := config[broker]
	r.choose("kafka.autocreate", on, "auto.create.topics.enable is "+cmp.Or(c["auto.create.topics.enable"], "not known"),
		choice{c["auto.create.topics.enable"] == "true", Warn,
			"auto.create.topics.enable is true: a topic that some client misspells is made, with one replica perhaps, and nobody reads it (K-36)",
			"auto.create.topics.enable=false in server.properties of every broker"})
	low, _, ok1 := c.millis("group.min.session.timeout.ms")
	high, _, ok2 := c.millis("group.max.session.timeout.ms")
	if ok1 && ok2 {
		r.choose("kafka.group.session", on, fmt.Sprintf("%s lies between %s and %s", k.opt.Session, low, high),
			choice{k.opt.Session < low || k.opt.Session > high, Bad,
				fmt.Sprintf("the session time-out %s does not lie between %s and %s: no worker can join", k.opt.Session, low, high),
				"Consumer.Group.Session.Timeout of sarama, or group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers"})
	}
	if minutes, known := c.number("offsets.retention.minutes"); known {
		keep := time.Duration(min(minutes, 1<<30)) * time.Minute
		const week = 7 * 24 * time.Hour
		r.choose("kafka.offsets.retention", on, fmt.Sprintf("%s after the group has ended", lasting(keep)),
			choice{keep < min(week, k.opt.Retention), Warn,
				fmt.Sprintf("offsets of a group without members are forgotten after %s: a consumer that stands still for longer begins "+
					"anew, with all records there are (K-19)", lasting(keep)), "offsets.retention.minutes=10080 in server.properties of every broker"})
	}
}

// describe returns the settings of resources of one kind. With an error nothing is known.
func (k *kafkaDoctor) describe(kind sarama.ConfigResourceType, names ...string) (map[string]settings, error) {
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

// findSources takes the topics of the flags, else those on record, else those with committed offsets.
func (k *kafkaDoctor) findSources(r *Findings) {
	k.sources = k.opt.Topics
	if len(k.sources) == 0 {
		k.sources = k.scopes.topicsOf(cmp.Or(k.in.Scope, k.in.Group))
	}
	if len(k.sources) == 0 {
		offsets, err := k.admin.ListConsumerGroupOffsets(k.in.Group, nil)
		switch {
		case errors.Is(err, sarama.ErrGroupIDNotFound):
		case err != nil:
			k.blind(r, "kafka.topic.missing", k.in.Group, err, "Describe", "--group "+k.in.Group)
			return
		default:
			k.sources = slices.Collect(maps.Keys(offsets.Blocks))
		}
	}
	k.sources = slices.DeleteFunc(slices.Clone(k.sources), func(t string) bool { // the group's own, consumed beside their source
		return strings.Contains(t, idem.RetryTopic("", k.in.Group, 0))
	})
	slices.Sort(k.sources)
	k.sources = slices.Compact(k.sources)
	if len(k.sources) == 0 {
		r.say(Unknown, "kafka.topic.missing", "group "+k.in.Group, "no store knows which topics the group consumes, and it has committed nothing", "idem doctor --topics ...")
	}
}

// facts looks at topics, those that exist.
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
		case errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition), errors.Is(t.Err, sarama.ErrInvalidTopic):
			continue
		case !errors.Is(t.Err, sarama.ErrNoError) && !errors.Is(t.Err, sarama.ErrLeaderNotAvailable):
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
