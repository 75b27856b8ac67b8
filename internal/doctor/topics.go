package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// checkTopics looks at the topics consumed, and at those of the group's own that belong to each.
func (k *kafkaDoctor) checkTopics(r *Findings) {
	if len(k.sources) == 0 {
		return
	}
	retries := make(map[string][]string, len(k.sources))
	wanted := slices.Clone(k.sources)
	for _, source := range k.sources {
		wanted = append(wanted, k.deadLetters(source))
		retries[source] = []string{idem.RetryTopic(source, k.in.Group, 0)}
		for _, delay := range k.opt.RetryDelays {
			retries[source] = append(retries[source], idem.RetryTopic(source, k.in.Group, delay))
		}
		wanted = append(wanted, retries[source]...)
	}
	wanted = slices.DeleteFunc(wanted, func(name string) bool { return !legalTopic.MatchString(name) }) // has been said
	slices.Sort(wanted)
	facts, err := k.facts(slices.Compact(wanted))
	if err != nil {
		k.blind(r, "kafka.topic.missing", strings.Join(k.sources, ","), err, "Describe", "--topic <topic>")
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
		if letters := facts[k.deadLetters(name)]; k.present(r, "dlq", letters, source, true) {
			k.checkOwn(r, "dlq", letters, source)
		}
		for i, retry := range retries[name] {
			// Where replayed dead letters come back: needed when there are any.
			if k.present(r, "retry", facts[retry], source, i > 0) {
				k.checkOwn(r, "retry", facts[retry], source)
			}
		}
	}
}

// present says whether a topic is there, and reports whether its settings are known. source is what it belongs to.
func (k *kafkaDoctor) present(r *Findings, role string, t, source *topicFacts, needed bool) bool {
	if t == nil {
		return false // its name is none
	}
	id := "kafka." + role + ".missing"
	switch {
	case t.err != nil && !t.exists:
		k.blind(r, id, t.name, t.err, "Describe", "--topic "+t.name)
		return false
	case !t.exists && !needed:
		r.say(Skipped, id, t.name, "not there, and not needed until a dead letter is replayed", k.create(t, source))
		return false
	case !t.exists && source == nil:
		r.say(Bad, id, t.name, "does not exist: a consumer refuses to start (K-36)", "")
		return false
	case !t.exists:
		what := "no dead letter can be written, and a consumer refuses to start unless it may create it (Config.CreateDeadLetterTopics)"
		if role == "retry" {
			what = "no event can be moved to a later attempt"
		}
		r.say(Bad, id, t.name, "does not exist: "+what+" (K-36)", k.create(t, source))
		return false
	}
	r.say(OK, id, t.name, fmt.Sprintf("%d partitions, %d replicas", len(t.partitions), t.replicas), "")
	if t.err != nil {
		k.blind(r, "kafka.rights", t.name, t.err, "DescribeConfigs", "--topic "+t.name)
		return false
	}
	return true
}

// create is the command that makes a topic in the shape of its source.
func (k *kafkaDoctor) create(t, source *topicFacts) string {
	return k.tool("kafka-topics.sh", "--create --topic %s --partitions %d --replication-factor %d --config retention.ms=-1",
		t.name, len(source.partitions), source.replicas)
}

func (k *kafkaDoctor) checkSource(r *Findings, t *topicFacts) {
	k.checkSafety(r, "topic", t)
	keep, forever, known := t.config.millis("retention.ms")
	policy := t.config["cleanup.policy"]
	if !known || policy == "" {
		r.say(Unknown, "kafka.topic.retention", t.name, "the broker does not tell retention.ms and cleanup.policy", "")
		return
	}
	endless := "records stay for ever"
	if policy == "compact" {
		endless = "the topic is compacted, so that the last record of each key stays for ever"
		forever = true
	}
	remember := fmt.Sprintf("idem.Retention(%s), or a shorter retention.ms; and be careful with rewinds", keep)
	const risk = "what is delivered again after that, by a rewind or after lost offsets, is handled twice or given up as too old (K-20, rule 8)"
	r.choose("kafka.topic.retention", t.name, fmt.Sprintf("records stay for %s, the store remembers for %s", lasting(keep), lasting(k.opt.Retention)),
		choice{forever, Warn, fmt.Sprintf("%s, the store remembers for %s: %s", endless, lasting(k.opt.Retention), risk),
			"a finite retention.ms where that is possible; rewind by no more than idem.Retention"},
		choice{keep > k.opt.Retention, Warn,
			fmt.Sprintf("records stay for %s, the store remembers for %s: %s", lasting(keep), lasting(k.opt.Retention), risk), remember})
}

// checkSafety is about what a broker's crash does to a topic.
func (k *kafkaDoctor) checkSafety(r *Findings, role string, t *topicFacts) {
	severe := Bad // of the group's own topics
	if role == "topic" {
		severe = Warn
	}
	prefix := "kafka." + role + "."
	r.choose(prefix+"replication", t.name, fmt.Sprintf("%d replicas on %d brokers", t.replicas, k.brokers),
		choice{t.replicas == 1 && k.brokers > 1, severe,
			fmt.Sprintf("one replica although there are %d brokers: what is in it is gone with its disk (K-36)", k.brokers),
			k.tool("kafka-reassign-partitions.sh", "--execute --reassignment-json-file <%s on several brokers>", t.name)})
	isr, known := t.config.number("min.insync.replicas")
	if !known {
		r.say(Unknown, prefix+"min_isr", t.name, "the broker does not tell min.insync.replicas", "")
	} else {
		fit := max(1, t.replicas-1)
		r.choose(prefix+"min_isr", t.name, fmt.Sprintf("%d of %d", isr, t.replicas),
			choice{isr > int64(t.replicas), Bad,
				fmt.Sprintf("min.insync.replicas is %d and there are %d replicas: nothing that waits for all of them can be written", isr, t.replicas),
				k.set(t.name, fmt.Sprintf("min.insync.replicas=%d", fit))},
			choice{isr == int64(t.replicas) && t.replicas > 1, Warn,
				fmt.Sprintf("min.insync.replicas is %d of %d replicas: while one broker is away nothing can be written, and what waits for that stands still", isr, t.replicas),
				k.set(t.name, fmt.Sprintf("min.insync.replicas=%d", fit))},
			choice{isr == 1 && t.replicas > 2, Warn,
				fmt.Sprintf("min.insync.replicas is 1 of %d replicas: a record may be acknowledged by one broker and lost with it", t.replicas),
				k.set(t.name, "min.insync.replicas=2")})
	}
	unclean := t.config["unclean.leader.election.enable"]
	r.choose(prefix+"unclean", t.name, "unclean.leader.election.enable is "+unclean,
		choice{unclean == "", Unknown, "the broker does not tell unclean.leader.election.enable", ""},
		choice{unclean == "true", Warn,
			"unclean.leader.election.enable is true: a broker that lags behind may become leader, acknowledged records are gone, and others get their offsets (K-32)",
			k.set(t.name, "unclean.leader.election.enable=false")})
}

// checkOwn looks at a topic that Idem writes, beside its source.
func (k *kafkaDoctor) checkOwn(r *Findings, role string, t, source *topicFacts) {
	prefix := "kafka." + role + "."
	n, want := len(t.partitions), len(source.partitions)
	r.choose(prefix+"partitions", t.name, fmt.Sprintf("%d, the source has %d", n, want),
		choice{n < want, Warn, fmt.Sprintf("%d partitions, the source has %d: when all events fail at once this one is slower", n, want),
			k.tool("kafka-topics.sh", "--alter --topic %s --partitions %d", t.name, want)})
	k.checkSafety(r, role, t)
	policy := t.config["cleanup.policy"]
	r.choose(prefix+"compacted", t.name, "cleanup.policy is "+policy,
		choice{policy == "", Unknown, "the broker does not tell cleanup.policy", ""},
		choice{strings.Contains(policy, "compact"), Bad,
			"cleanup.policy is " + policy + ": of several records with one key the last one stays, and records without key are refused",
			k.set(t.name, "cleanup.policy=delete")})
	if role == "dlq" {
		k.checkKept(r, prefix, t, source)
	} else {
		k.checkWaiting(r, prefix, t)
	}
	size, ok1 := t.config.number("max.message.bytes")
	limit, ok2 := source.config.number("max.message.bytes")
	r.choose(prefix+"size", t.name, fmt.Sprintf("max.message.bytes is %d, the source's %d", size, limit),
		choice{!ok1 || !ok2, Unknown, "the broker does not tell max.message.bytes", ""},
		choice{size < limit, Warn,
			fmt.Sprintf("max.message.bytes is %d, the source's %d: of a record between the two only a pointer is kept, and its value is gone when the source forgets it (T-04, rule 45)", size, limit),
			k.set(t.name, fmt.Sprintf("max.message.bytes=%d", limit+deadLetterHeaders))})
}

// letterHeaders is room for what a dead letter says beside its record.
const deadLetterHeaders = 16 << 10

// checkWaiting looks how long a copy stays, which has the time of its making.
func (k *kafkaDoctor) checkWaiting(r *Findings, prefix string, t *topicFacts) {
	keep, forever, known := t.config.millis("retention.ms")
	const day = 24 * time.Hour
	r.choose(prefix+"retention", t.name, "they stay long enough",
		choice{!known, Unknown, "the broker does not tell retention.ms", ""},
		choice{!forever && keep < 2*day, Warn,
			fmt.Sprintf("retention.ms is %s: when the consumers stand still for longer, the copies that wait are gone", lasting(keep)),
			k.set(t.name, "retention.ms=604800000")})
}

// checkKept looks how long a dead letter stays. It keeps the time of its record, so that an old one may be gone at once, or be
// refused.
func (k *kafkaDoctor) checkKept(r *Findings, prefix string, t, source *topicFacts) {
	byRecord := t.config["message.timestamp.type"] != "LogAppendTime"
	keep, forever, known := t.config.millis("retention.ms")
	age, endless, compared := source.config.millis("retention.ms")
	endless = endless || source.config["cleanup.policy"] == "compact"
	mend := k.set(t.name, "retention.ms=-1")
	const week = 7 * 24 * time.Hour
	bytes, limited := t.config.number("retention.bytes")
	r.choose(prefix+"retention", t.name, "they stay long enough",
		choice{!known, Unknown, "the broker does not tell retention.ms", ""},
		choice{!forever && byRecord && !compared, Unknown, "retention.ms is " + lasting(keep) + ", and how old records of the source may be is not known", mend},
		choice{!forever && byRecord && (endless || keep <= age), Bad,
			fmt.Sprintf("retention.ms is %s, by the time of the record, and records of the source may be as old as that when they are given up: "+
				"such a dead letter is deleted at once", lasting(keep)), mend},
		choice{!forever && byRecord && keep < age+week, Warn,
			fmt.Sprintf("retention.ms is %s, by the time of the record: of an old record the dead letter stays less than a week", lasting(keep)), mend},
		choice{!forever && keep < week, Warn, fmt.Sprintf("retention.ms is %s: that is how long a person has", lasting(keep)), mend},
		choice{limited && bytes >= 0, Warn, fmt.Sprintf("retention.bytes is %d: the oldest dead letters go when there are many", bytes), k.set(t.name, "retention.bytes=-1")})
	before, any, known := t.config.millis("message.timestamp.before.max.ms")
	if !known { // before Kafka 3.6
		before, any, known = t.config.millis("message.timestamp.difference.max.ms")
	}
	r.choose(prefix+"timestamp", t.name, "any age",
		choice{!known, Skipped, "the broker has no such limit", ""},
		choice{byRecord && !any && !compared, Unknown, "message.timestamp.before.max.ms is " + lasting(before) + ", and how old records of the source may be is not known", ""},
		choice{byRecord && !any && (endless || before < age), Bad,
			fmt.Sprintf("message.timestamp.before.max.ms is %s: a dead letter of an older record is refused, and its partition stands still", lasting(before)),
			k.set(t.name, "message.timestamp.before.max.ms=9223372036854775807")})
}

// lasting writes days as such.
func lasting(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%time.Hour == 0 {
		if d%day == 0 {
			return fmt.Sprintf("%d days", d/day)
		}
		return fmt.Sprintf("%d days %s", d/day, strings.TrimSuffix((d%day).String(), "0m0s"))
	}
	return d.String()
}
