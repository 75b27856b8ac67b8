package otelidem

import "slices"

// Kind is the kind of an instrument.
type Kind uint8

const (
	// Counter only grows.
	Counter Kind = iota + 1
	// UpDownCounter is a number that grows and shrinks.
	UpDownCounter
	// Histogram counts values by size.
	Histogram
	// Gauge is a current value. A value without its subject is no longer reported.
	Gauge
)

// String returns OpenTelemetry's name of the kind.
func (k Kind) String() string {
	names := [...]string{"none", "counter", "updowncounter", "histogram", "gauge"}
	if int(k) < len(names) {
		return names[k]
	}
	return "none"
}

// Metric describes one metric.
type Metric struct {
	Name        string
	Kind        Kind
	Unit        string
	Description string
	// Attributes are the labels that the metric may have. An unknown value is left out.
	Attributes []string
	// Buckets are the boundaries of a histogram.
	Buckets []float64
}

// Metrics lists all metrics, in the order of the documentation. The instruments are created from
// this list. The result is a copy that the caller may keep and change.
func Metrics() (all []Metric) {
	for _, m := range slices.Concat(engineMetrics, runnerMetrics, outboxMetrics, httpMetrics,
		doMetrics) {
		c := *m
		c.Attributes, c.Buckets = slices.Clone(m.Attributes), slices.Clone(m.Buckets)
		all = append(all, c)
	}
	return all
}

// The attributes of metrics and spans. The first block follows OpenTelemetry's semantic
// conventions.
const (
	attrSystem        = "messaging.system"
	attrOperation     = "messaging.operation.name"
	attrOperationType = "messaging.operation.type"
	attrTopic         = "messaging.destination.name"
	attrPartition     = "messaging.destination.partition.id"
	attrGroup         = "messaging.consumer.group.name"
	attrBatchCount    = "messaging.batch.message_count"
	attrOffset        = "messaging.kafka.offset"
	attrMessageKey    = "messaging.kafka.message.key"
	attrErrorType     = "error.type"

	attrEventType       = "idem.event.type"
	attrOutcome         = "idem.outcome"
	attrCause           = "idem.duplicate.cause"
	attrVerdict         = "idem.verdict"
	attrShadow          = "idem.shadow"
	attrStore           = "idem.store"
	attrStoreCall       = "idem.store.operation"
	attrRetryKind       = "idem.retry.kind"
	attrDeadLetterClass = "idem.dead_letter.class"
	attrSkipped         = "idem.skipped.reason"
	attrUnprotected     = "idem.unprotected.reason"
	attrStallKind       = "idem.stall.kind"
	attrRebalance       = "idem.rebalance.kind"
	attrGapPolicy       = "idem.gap.policy"
	attrKey             = "idem.key"
	attrAttempt         = "idem.attempt"
	attrTx              = "idem.transactional"
	attrGroupHandled    = "idem.run.handled"
	attrGroupDuplicates = "idem.run.duplicates"
)

const kafka = "kafka"

var (
	// durationBuckets are the buckets of the semantic conventions.
	durationBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5,
		7.5, 10}
	// storeBuckets begin lower: a claim in Redis takes less than a millisecond.
	storeBuckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
		2.5, 5, 10, 30}
	// ageBuckets reach from seconds (a producer's retry) to a month (a rewind).
	ageBuckets = []float64{0.1, 1, 10, 60, 600, 3600, 21600, 86400, 259200, 604800, 2592000}
	// sizeBuckets reach to the largest batch.
	sizeBuckets = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}
)

var (
	mConsumed = Metric{
		Name: "messaging.client.consumed.messages", Kind: Counter, Unit: "{message}",
		Description: "Settled deliveries. A record that is fetched again counts again.",
		Attributes:  []string{attrSystem, attrOperation, attrGroup, attrTopic, attrOutcome},
	}
	mDeferred = Metric{
		Name: "idem.deferred", Kind: Counter, Unit: "{event}",
		Description: "Events that had waited in the store and were settled from there. Their " +
			"deliveries were counted before, with the outcome later.",
		Attributes: []string{attrSystem, attrOperation, attrGroup, attrTopic, attrOutcome},
	}
	mProcess = Metric{
		Name: "messaging.process.duration", Kind: Histogram, Unit: "s", Buckets: durationBuckets,
		Description: "Duration of handler calls.",
		Attributes: []string{attrSystem, attrOperation, attrGroup, attrTopic, attrEventType,
			attrErrorType},
	}
	mCallSize = Metric{
		Name: "idem.call.size", Kind: Histogram, Unit: "{event}", Buckets: sizeBuckets,
		Description: "Events in a call of a batch handler.",
		Attributes:  []string{attrSystem, attrGroup, attrEventType},
	}
	mInFlight = Metric{
		Name: "idem.handlers.in_flight", Kind: UpDownCounter, Unit: "{event}",
		Description: "Events in calls of handlers that run now.",
		Attributes:  []string{attrSystem, attrGroup, attrEventType},
	}
	mClaimGroupSize = Metric{
		Name: "idem.run.size", Kind: Histogram, Unit: "{event}", Buckets: sizeBuckets,
		Description: "Events whose claims shared a round trip or a transaction.",
		Attributes:  []string{attrSystem, attrGroup, attrErrorType},
	}
	mDuplicates = Metric{
		Name: "idem.duplicates", Kind: Counter, Unit: "{event}",
		Description: "Deliveries whose handler did not run because their event was handled before.",
		Attributes: []string{attrSystem, attrGroup, attrTopic, attrEventType, attrCause,
			attrVerdict, attrShadow},
	}
	mDuplicateAge = Metric{
		Name: "idem.duplicate.age", Kind: Histogram, Unit: "s", Buckets: ageBuckets,
		Description: "Time between the handled record and a copy of it elsewhere in the log.",
		Attributes: []string{attrSystem, attrGroup, attrTopic, attrEventType, attrCause,
			attrVerdict, attrShadow},
	}
	mConflicts = Metric{
		Name: "idem.conflicts", Kind: Counter, Unit: "{event}",
		Description: "Copies whose content differs from the event with their ID, by the state of " +
			"that event.",
		Attributes: []string{attrSystem, attrGroup, attrTopic, attrEventType, attrVerdict},
	}
	mClaims = Metric{
		Name: "idem.claims", Kind: Counter, Unit: "{claim}",
		Description: "Answers of stores to claims. The verdict none means no answer, or a " +
			"transaction that was rolled back.",
		Attributes: []string{attrGroup, attrStore, attrVerdict},
	}
	mClaimsLost = Metric{
		Name: "idem.claims.lost", Kind: Counter, Unit: "{claim}",
		Description: "Claims that were lost before the store had recorded the end of their " +
			"event: handled, dead letter or delayed retry.",
		Attributes: []string{attrSystem, attrGroup, attrEventType},
	}
	mTakeovers = Metric{
		Name: "idem.claims.takeovers", Kind: Counter, Unit: "{claim}",
		Description: "Claims that were granted after the lease of an earlier holder had ended " +
			"without a completion.",
		Attributes: []string{attrGroup, attrStore},
	}
	mStoreCall = Metric{
		Name: "idem.store.operation.duration", Kind: Histogram, Unit: "s", Buckets: storeBuckets,
		Description: "Duration of store calls. A transaction includes its handlers and its commit.",
		Attributes:  []string{attrGroup, attrStore, attrStoreCall, attrErrorType},
	}
	mStoreDown = Metric{
		Name: "idem.store.down", Kind: UpDownCounter, Unit: "{store}",
		Description: "Stores, and producers of dead letters, that are down now.",
		Attributes:  []string{attrGroup, attrStore},
	}
	mOutages = Metric{
		Name: "idem.store.outages", Kind: Counter, Unit: "{outage}",
		Description: "Outages of a store, or of the producer of dead letters.",
		Attributes:  []string{attrGroup, attrStore},
	}
	mRetries = Metric{
		Name: "idem.retries", Kind: Counter, Unit: "{attempt}",
		Description: "Failures that will be tried again: in_place, through a retry topic " +
			"(topic), or in the store (deferred). The kind behind is an event that waits behind " +
			"a failing event of its key.",
		Attributes: []string{attrSystem, attrGroup, attrTopic, attrEventType, attrRetryKind,
			attrErrorType},
	}
	mDeadLetters = Metric{
		Name: "idem.dead_letters", Kind: Counter, Unit: "{message}",
		Description: "Dead letters that the broker acknowledged, by class.",
		Attributes:  []string{attrSystem, attrGroup, attrTopic, attrDeadLetterClass},
	}
	mOmitted = Metric{
		Name: "idem.dead_letters.omitted", Kind: Counter, Unit: "{message}",
		Description: "Dead letters without the value of their record, which is too large for the " +
			"topic of dead letters.",
		Attributes: []string{attrSystem, attrGroup, attrTopic},
	}
	mSkipped = Metric{
		Name: "idem.skipped", Kind: Counter, Unit: "{message}",
		Description: "Messages that were skipped: a tombstone, no_handler for their type, or " +
			"no_event_id (SkipNoID).",
		Attributes: []string{attrSystem, attrGroup, attrTopic, attrSkipped},
	}
	mUnprotected = Metric{
		Name: "idem.unprotected", Kind: Counter, Unit: "{event}",
		Description: "Deliveries whose handler ran without the store, so without protection " +
			"against duplicates: no_event_id (RunNoID) or store_unavailable (WhenUnavailable).",
		Attributes: []string{attrSystem, attrGroup, attrTopic, attrEventType, attrUnprotected},
	}
	mBreakers = Metric{
		Name: "idem.breakers.open", Kind: UpDownCounter, Unit: "{handler}",
		Description: "Handlers whose circuit breaker is open or half-open, so that their events " +
			"wait for a dependency.",
		Attributes: []string{attrSystem, attrGroup, attrEventType},
	}
	mHandlerStalls = Metric{
		Name: "idem.handler.stalls", Kind: Counter, Unit: "{event}",
		Description: "Handlers that run on after their time-out (hung), and events that another " +
			"worker holds for long (busy).",
		Attributes: []string{attrSystem, attrGroup, attrEventType, attrStallKind},
	}
)

// engineMetrics are the metrics of processors.
var engineMetrics = []*Metric{
	&mConsumed, &mDeferred, &mProcess, &mCallSize, &mInFlight, &mClaimGroupSize, &mDuplicates,
	&mDuplicateAge, &mConflicts, &mClaims, &mClaimsLost, &mTakeovers,
	&mStoreCall, &mStoreDown, &mOutages, &mRetries, &mDeadLetters, &mOmitted, &mSkipped,
	&mUnprotected, &mHandlerStalls, &mBreakers,
}

var (
	mOperation = Metric{
		Name: "messaging.client.operation.duration", Kind: Histogram, Unit: "s",
		Buckets: durationBuckets,
		Description: "Duration of commits of offsets and of sends of outboxes " +
			"(messaging.operation.name).",
		Attributes: []string{attrSystem, attrOperation, attrOperationType, attrGroup, attrTopic,
			attrErrorType},
	}
	mAssigned = Metric{
		Name: "idem.partitions.assigned", Kind: Gauge, Unit: "{partition}",
		Description: "Partitions assigned to consumers of this process.",
		Attributes:  []string{attrSystem, attrGroup},
	}
	mLag = Metric{
		Name: "idem.partition.lag", Kind: Gauge, Unit: "{record}",
		Description: "Offsets between the watermark, which is marked for commit, and the end of " +
			"the log at the last fetch.",
		Attributes: []string{attrSystem, attrGroup, attrTopic, attrPartition},
	}
	mPending = Metric{
		Name: "idem.partition.pending", Kind: Gauge, Unit: "{record}",
		Description: "Fetched records that the watermark does not cover yet.",
		Attributes:  []string{attrSystem, attrGroup, attrTopic, attrPartition},
	}
	mStalled = Metric{
		Name: "idem.partition.stalled", Kind: Gauge, Unit: "{partition}",
		Description: "1 while the watermark of a partition with unsettled records stands for too " +
			"long, else 0.",
		Attributes: []string{attrSystem, attrGroup, attrTopic, attrPartition},
	}
	mPartitionStalls = Metric{
		Name: "idem.partition.stalls", Kind: Counter, Unit: "{stall}",
		Description: "How often the watermark of a partition stood for too long.",
		Attributes:  []string{attrSystem, attrGroup, attrTopic},
	}
	mRebalances = Metric{
		Name: "idem.rebalances", Kind: Counter, Unit: "{rebalance}",
		Description: "Changes of the assigned partitions: assigned, revoked, lost.",
		Attributes:  []string{attrSystem, attrGroup, attrRebalance},
	}
	mGaps = Metric{
		Name: "idem.offset.gaps", Kind: Counter, Unit: "{gap}",
		Description: "Partitions whose committed offset was no longer in the log, or whose log was cut.",
		Attributes:  []string{attrSystem, attrGroup, attrTopic, attrGapPolicy},
	}
	mTopicsMissing = Metric{
		Name: "idem.topics.missing", Kind: UpDownCounter, Unit: "{topic}",
		Description: "Topics of a subscription that must not be read, or were deleted.",
		Attributes:  []string{attrSystem, attrGroup, attrTopic},
	}
	mSilences = Metric{
		Name: "idem.partition.silences", Kind: Counter, Unit: "{silence}",
		Description: "How often a consumer joined the group again because a partition had become " +
			"silent.",
		Attributes: []string{attrSystem, attrGroup, attrTopic},
	}
)

// runnerMetrics are the metrics of consumers.
var runnerMetrics = []*Metric{
	&mOperation, &mAssigned, &mLag, &mPending, &mStalled, &mPartitionStalls, &mRebalances, &mGaps,
	&mTopicsMissing, &mSilences,
}
