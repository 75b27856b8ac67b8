package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/words"
)

// checkKafka examines the cluster. The error means that ctx has ended.
func (d *examination) checkKafka(ctx context.Context, r *Findings) error {
	if d.in.Kafka == nil {
		r.say(Skipped, "kafka.connect", "", "no --brokers", "")
		return nil
	}
	client, err := d.in.Kafka(ctx)
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
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil // the other findings stay
		}
		return context.Cause(ctx)
	}
	k := &kafkaDoctor{
		examination: d, client: client, admin: admin,
		servers: d.in.Brokers, brokers: len(client.Brokers()),
	}
	if len(k.servers) == 0 {
		k.servers = addresses(client.Brokers())
	}
	r.say(OK, "kafka.connect", strings.Join(k.servers, ","),
		words.Plain(k.brokers, "broker"), "")
	for _, check := range []func(*Findings){
		k.checkBrokers, k.findSources, k.checkTopics, k.checkGroup, k.checkOffsets,
	} {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		check(r)
	}
	return nil
}

// checkBrokers checks the settings of a broker that are the same for all topics.
func (k *kafkaDoctor) checkBrokers(r *Findings) {
	broker := strconv.Itoa(int(k.client.Brokers()[0].ID()))
	config, err := k.describe(sarama.BrokerResource, broker)
	on := "broker " + broker
	if err != nil {
		k.blind(r, "kafka.rights", on, err, "DescribeConfigs", "--cluster")
		return
	}
	c := config[broker]
	create := c["auto.create.topics.enable"]
	r.choose("kafka.autocreate", on, "auto.create.topics.enable is "+cmp.Or(create, "not known"),
		choice{create == "true", Warn, "auto.create.topics.enable is true: a topic that a client " +
			"misspells is created, perhaps with one replica, and no consumer reads it",
			"auto.create.topics.enable=false in server.properties of every broker"})
	low, _, ok1 := c.millis("group.min.session.timeout.ms")
	high, _, ok2 := c.millis("group.max.session.timeout.ms")
	if ok1 && ok2 {
		session := k.opt.Session
		r.choose("kafka.group.session", on,
			fmt.Sprintf("%s is between %s and %s", session, low, high),
			choice{session < low || session > high, Bad,
				fmt.Sprintf("the session timeout %s is not between %s and %s: no worker can join",
					session, low, high),
				"Consumer.Group.Session.Timeout of sarama, or group.min.session.timeout.ms " +
					"and group.max.session.timeout.ms of the brokers"})
	}
	if minutes, known := c.number("offsets.retention.minutes"); known {
		keep := time.Duration(min(minutes, 1<<30)) * time.Minute
		r.choose("kafka.offsets.retention", on, lasting(keep)+" after the group has ended",
			choice{keep < min(7*day, k.opt.Retention), Warn,
				fmt.Sprintf("a group without members loses its offsets after %s: a consumer that "+
					"is stopped for longer starts again at the oldest record", lasting(keep)),
				"offsets.retention.minutes=10080 in server.properties of every broker"})
	}
}

// findSources sets the consumed topics: those of the options, or those on record, or those with
// committed offsets.
func (k *kafkaDoctor) findSources(r *Findings) {
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
	k.sources = slices.DeleteFunc(slices.Clone(k.sources), func(t string) bool {
		return strings.Contains(t, deadletter.RetryTopic("", k.in.Group, 0)) // consumed beside its source
	})
	slices.Sort(k.sources)
	k.sources = slices.Compact(k.sources)
	if len(k.sources) == 0 {
		r.say(Unknown, "kafka.topic.missing", "group "+k.in.Group,
			"the topics of the group are not known: no store has them on record, "+
				"and there are no committed offsets",
			"idem doctor --topics ...")
	}
}
