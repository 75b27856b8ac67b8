package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/words"
)

// checkTopics checks the consumed topics, and the group's dead-letter and retry topics of each.
func (k *kafkaDoctor) checkTopics(r *Findings) {
	if len(k.sources) == 0 {
		return
	}
	retries := make(map[string][]string, len(k.sources))
	wanted := slices.Clone(k.sources)
	for _, source := range k.sources {
		wanted = append(wanted, k.deadLetters(source))
		retries[source] = []string{deadletter.RetryTopic(source, k.in.Group, 0)}
		for _, delay := range k.opt.RetryDelays {
			retries[source] = append(retries[source], deadletter.RetryTopic(source, k.in.Group, delay))
		}
		wanted = append(wanted, retries[source]...)
	}
	wanted = slices.DeleteFunc(wanted, func(name string) bool {
		return !legalTopic.MatchString(name) // settings.dlq.name has reported the name
	})
	slices.Sort(wanted)
	facts, err := k.facts(slices.Compact(wanted))
	if err != nil {
		k.blind(r, "kafka.topic.missing", strings.Join(k.sources, ","), err,
			"Describe", "--topic <topic>")
		return
	}
	k.there = map[string][]int32{}
	for _, name := range k.sources {
		source := facts[name]
		if source != nil && source.exists {
			k.there[name] = source.partitions
		}
		if k.present(r, "topic", source, nil, true) {
			k.checkSource(r, source)
		}
		if source == nil || !source.exists {
			continue
		}
		if dlq := facts[k.deadLetters(name)]; k.present(r, "dlq", dlq, source, true) {
			k.checkOwn(r, "dlq", dlq, source)
		}
		for i, retry := range retries[name] {
			// The first retry topic gets replayed dead letters, and is needed for those only.
			if k.present(r, "retry", facts[retry], source, i > 0) {
				k.checkOwn(r, "retry", facts[retry], source)
			}
		}
	}
}

// present reports a missing topic. The result is true if the settings of the topic are known.
// source is the topic that t belongs to.
func (k *kafkaDoctor) present(r *Findings, role string, t, source *topicFacts, needed bool) bool {
	if t == nil {
		return false // the name is illegal
	}
	id := "kafka." + role + ".missing"
	switch {
	case t.err != nil && !t.exists:
		k.blind(r, id, t.name, t.err, "Describe", "--topic "+t.name)
		return false
	case !t.exists && !needed:
		r.say(Skipped, id, t.name,
			"does not exist, and is not needed until a dead letter is replayed",
			k.create(t, source))
		return false
	case !t.exists && source == nil:
		r.say(Bad, id, t.name, "does not exist: a consumer refuses to start", "")
		return false
	case !t.exists:
		effect := "no dead letter can be written, and a consumer refuses to start unless it may " +
			"create the topic (Config.CreateDeadLetterTopics)"
		if role == "retry" {
			effect = "no delayed retry of an event can be written"
		}
		r.say(Bad, id, t.name, "does not exist: "+effect, k.create(t, source))
		return false
	}
	r.say(OK, id, t.name,
		words.Plain(len(t.partitions), "partition")+", "+words.Plain(t.replicas, "replica"), "")
	if t.err != nil {
		k.blind(r, "kafka.rights", t.name, t.err, "DescribeConfigs", "--topic "+t.name)
		return false
	}
	return true
}

// create returns the command that creates a topic with the partitions and replicas of its source.
func (k *kafkaDoctor) create(t, source *topicFacts) string {
	return k.tool("kafka-topics.sh",
		"--create --topic %s --partitions %d --replication-factor %d --config retention.ms=-1",
		t.name, len(source.partitions), source.replicas)
}

// notTold is the detail of a setting that the broker does not return.
func notTold(names string) string { return "the broker does not return " + names }

// checkSource checks a consumed topic.
func (k *kafkaDoctor) checkSource(r *Findings, t *topicFacts) {
	k.checkSafety(r, "topic", t)
	const id = "kafka.topic.retention"
	keep, forever, known := t.config.millis("retention.ms")
	policy := t.config["cleanup.policy"]
	if !known || policy == "" {
		r.say(Unknown, id, t.name, notTold("retention.ms and cleanup.policy"), "")
		return
	}
	endless := "records stay forever"
	if policy == "compact" {
		endless = "the topic is compacted, so the last record of each key stays forever"
		forever = true
	}
	limited := "records stay for " + lasting(keep)
	remembered := ", the store remembers for " + lasting(k.opt.Retention)
	const risk = ": older events that are redelivered, by a rewind or after lost offsets, " +
		"are handled twice or given up as too old"
	r.choose(id, t.name, limited+remembered,
		choice{forever, Warn, endless + remembered + risk,
			"a finite retention.ms where possible; rewind by no more than idem.Retention"},
		choice{keep > k.opt.Retention, Warn, limited + remembered + risk,
			fmt.Sprintf("idem.Retention(%s), or a shorter retention.ms; "+
				"rewind by no more than idem.Retention", keep)})
}

// checkSafety finds settings with which the crash of a broker loses records.
func (k *kafkaDoctor) checkSafety(r *Findings, role string, t *topicFacts) {
	severe := Bad // for the group's own topics
	if role == "topic" {
		severe = Warn
	}
	prefix := "kafka." + role + "."
	r.choose(prefix+"replication", t.name,
		words.Plain(t.replicas, "replica")+" on "+words.Plain(k.brokers, "broker"),
		choice{t.replicas == 1 && k.brokers > 1, severe,
			fmt.Sprintf("one replica although there are %d brokers: the loss of one disk "+
				"loses the records", k.brokers),
			k.tool("kafka-reassign-partitions.sh",
				"--execute --reassignment-json-file <%s on several brokers>", t.name)})
	k.checkMinISR(r, prefix+"min_isr", t)
	unclean := t.config["unclean.leader.election.enable"]
	r.choose(prefix+"unclean", t.name, "unclean.leader.election.enable is "+unclean,
		choice{unclean == "", Unknown, notTold("unclean.leader.election.enable"), ""},
		choice{unclean == "true", Warn,
			"unclean.leader.election.enable is true: a broker that lags behind may become " +
				"leader. Acknowledged records are lost then, and other records get their offsets",
			k.set(t.name, "unclean.leader.election.enable=false")})
}

func (k *kafkaDoctor) checkMinISR(r *Findings, id string, t *topicFacts) {
	isr, known := t.config.number("min.insync.replicas")
	if !known {
		r.say(Unknown, id, t.name, notTold("min.insync.replicas"), "")
		return
	}
	fit := k.set(t.name, fmt.Sprintf("min.insync.replicas=%d", max(1, t.replicas-1)))
	state := fmt.Sprintf("min.insync.replicas is %d of %s", isr, words.Plain(t.replicas, "replica"))
	r.choose(id, t.name, fmt.Sprintf("%d of %d", isr, t.replicas),
		choice{isr > int64(t.replicas), Bad,
			state + ": a write that waits for all in-sync replicas always fails", fit},
		choice{isr == int64(t.replicas) && t.replicas > 1, Warn,
			state + ": while one broker is down, a write that waits for all in-sync replicas " +
				"fails, and consumers stop", fit},
		choice{isr == 1 && t.replicas > 2, Warn,
			state + ": a record may be acknowledged by one broker and lost with that broker",
			k.set(t.name, "min.insync.replicas=2")})
}

// checkOwn checks a topic that Idem writes. source is the consumed topic.
func (k *kafkaDoctor) checkOwn(r *Findings, role string, t, source *topicFacts) {
	prefix := "kafka." + role + "."
	n, want := len(t.partitions), len(source.partitions)
	r.choose(prefix+"partitions", t.name, fmt.Sprintf("%d, the source has %d", n, want),
		choice{n < want, Warn,
			fmt.Sprintf("%s, the source has %d: if every event fails, this topic "+
				"is slower", words.Plain(n, "partition"), want),
			k.tool("kafka-topics.sh", "--alter --topic %s --partitions %d", t.name, want)})
	k.checkSafety(r, role, t)
	policy := t.config["cleanup.policy"]
	r.choose(prefix+"compacted", t.name, "cleanup.policy is "+policy,
		choice{policy == "", Unknown, notTold("cleanup.policy"), ""},
		choice{strings.Contains(policy, "compact"), Bad,
			"cleanup.policy is " + policy + ": only the last record of each key stays, " +
				"and records without a key are refused",
			k.set(t.name, "cleanup.policy=delete")})
	if role == "dlq" {
		k.checkKept(r, prefix, t, source)
	} else {
		k.checkWaiting(r, prefix, t)
	}
	size, ok1 := t.config.number("max.message.bytes")
	limit, ok2 := source.config.number("max.message.bytes")
	state := fmt.Sprintf("max.message.bytes is %d, the source's %d", size, limit)
	r.choose(prefix+"size", t.name, state,
		choice{!ok1 || !ok2, Unknown, notTold("max.message.bytes"), ""},
		choice{size < limit, Warn,
			state + ": of a record between the two sizes only a pointer is kept, " +
				"and the value is lost when the source deletes the record",
			k.set(t.name, fmt.Sprintf("max.message.bytes=%d", limit+deadLetterHeaders))})
}

// deadLetterHeaders is the room for the headers that a dead letter has in addition to its record.
const deadLetterHeaders = 16 << 10

// checkWaiting checks how long a copy for a delayed retry stays. The copy has a timestamp of its
// own.
func (k *kafkaDoctor) checkWaiting(r *Findings, prefix string, t *topicFacts) {
	keep, forever, known := t.config.millis("retention.ms")
	r.choose(prefix+"retention", t.name, "copies stay long enough",
		choice{!known, Unknown, notTold("retention.ms"), ""},
		choice{!forever && keep < 2*day, Warn,
			fmt.Sprintf("retention.ms is %s: if the consumers stop for longer, the copies that "+
				"wait are lost", lasting(keep)),
			k.set(t.name, "retention.ms=604800000")})
}

// checkKept checks how long a dead letter stays, and whether an old one is refused. A dead letter
// has the timestamp of its record, so Kafka may delete an old one at once.
func (k *kafkaDoctor) checkKept(r *Findings, prefix string, t, source *topicFacts) {
	const week = 7 * day
	byRecord := t.config["message.timestamp.type"] != "LogAppendTime"
	keep, forever, known := t.config.millis("retention.ms")
	age, endless, compared := source.config.millis("retention.ms")
	endless = endless || source.config["cleanup.policy"] == "compact"
	mend := k.set(t.name, "retention.ms=-1")
	bytes, limited := t.config.number("retention.bytes")
	state := "retention.ms is " + lasting(keep)
	const unknownAge = ", and the greatest age of records of the source is not known"
	r.choose(prefix+"retention", t.name, "dead letters stay long enough",
		choice{!known, Unknown, notTold("retention.ms"), ""},
		choice{!forever && byRecord && !compared, Unknown, state + unknownAge, mend},
		choice{!forever && byRecord && (endless || keep <= age), Bad,
			state + ", by the timestamp of the record, and a record of the source may be older " +
				"when it is given up: such a dead letter is deleted at once", mend},
		choice{!forever && byRecord && keep < age+week, Warn,
			state + ", by the timestamp of the record: the dead letter of an old record stays " +
				"less than a week", mend},
		choice{!forever && keep < week, Warn, state + ": a person has that time to act", mend},
		choice{limited && bytes >= 0, Warn,
			fmt.Sprintf("retention.bytes is %d: the oldest dead letters are deleted when there "+
				"are many", bytes), k.set(t.name, "retention.bytes=-1")})
	before, any, known := t.config.millis("message.timestamp.before.max.ms")
	if !known { // before Kafka 3.6
		before, any, known = t.config.millis("message.timestamp.difference.max.ms")
	}
	state = "message.timestamp.before.max.ms is " + lasting(before)
	r.choose(prefix+"timestamp", t.name, "any age",
		choice{!known, Skipped, "the broker has no such limit", ""},
		choice{byRecord && !any && !compared, Unknown, state + unknownAge, ""},
		choice{byRecord && !any && (endless || before < age), Bad,
			state + ": a dead letter of an older record is refused, and its partition stops",
			k.set(t.name, "message.timestamp.before.max.ms=9223372036854775807")})
}
