package dashboards

import (
	"fmt"
	"strings"
)

// Labels by which series are chosen. Not all metrics have all of them.
const (
	inJob   = `job=~"$job"`
	inGroup = inJob + `,messaging_consumer_group_name=~"$group"`
	inTopic = inGroup + `,messaging_destination_name=~"$topic"`
	inSent  = inJob + `,messaging_destination_name=~"$topic"`
)

// The units that are used here, as Grafana calls them.
const (
	number    = "short"
	seconds   = "s"
	share     = "percentunit"
	perSecond = "cps"
)

const (
	byOutcome   = "idem_outcome"
	byPartition = "messaging_destination_name, messaging_destination_partition_id"
	byType      = "idem_event_type"
	partition   = "{{messaging_destination_name}}/{{messaging_destination_partition_id}}"
	box         = "{{job}} {{idem_outbox_name}}"
	consumed    = "messaging_client_consumed_messages_total"
	process     = "messaging_process_duration_seconds"
	storeCall   = "idem_store_operation_duration_seconds"
	operation   = "messaging_client_operation_duration_seconds"
)

// pace is how often a second a counter of those series grows.
func pace(metric, labels, by string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s{%s}[$__rate_interval]))", by, metric, labels)
}

// total is the same of all series together, and zero without a series.
func total(metric, labels string) string {
	return fmt.Sprintf("(sum(rate(%s{%s}[$__rate_interval])) or vector(0))", metric, labels)
}

// during is how much a counter has grown in the time that is shown, the first increment of each
// series included.
func during(metric, labels string) string {
	s := metric + "{" + labels + "}"
	return fmt.Sprintf("sum((%s unless %s offset $__range) or increase(%s[$__range])) or vector(0)", s, s, s)
}

// quantiles of a histogram, by labels.
func quantiles(metric, labels, by string, qs ...string) (targets []target) {
	legend, with := "", "le"
	if by != "" {
		with = "le, " + by
		legend = "{{" + strings.ReplaceAll(by, ", ", "}} {{") + "}} "
	}
	for _, q := range qs {
		targets = append(targets, target{
			fmt.Sprintf("histogram_quantile(%s, sum by (%s) (rate(%s_bucket{%s}[$__rate_interval])))", q, with, metric, labels),
			legend + "p" + strings.TrimPrefix(q+"0", "0.")[:2],
		})
	}
	return targets
}

// stat is a number.
func stat(title, about, unit, expr string, warn, bad float64) panel {
	return panel{title: title, about: about, unit: unit, stat: true, targets: []target{{expr, ""}}, warn: warn, bad: bad}
}

// graph is a graph.
func graph(title, about, unit string, targets ...target) panel {
	return panel{title: title, about: about, unit: unit, targets: targets}
}

// layers is a graph of parts of a whole.
func layers(title, about, unit string, targets ...target) panel {
	return panel{title: title, about: about, unit: unit, stacked: true, targets: targets}
}

// limits adds lines from which on a graph is orange, and red.
func (p panel) limits(warn, bad float64) panel {
	p.warn, p.bad = warn, bad
	return p
}

var rows = []row{
	{"At a glance", []panel{
		stat("Deliveries", "Messages that were settled, each once every time it is fetched.", perSecond, total(consumed, inTopic), 0, 0),
		stat("Handled", "Events whose handler has succeeded, and the store knows.", perSecond, total(consumed, inTopic+`,idem_outcome="handled"`), 0, 0),
		stat("Duplicates", "How many of the deliveries were skipped because their event was handled before.", share,
			total(consumed, inTopic+`,idem_outcome="duplicate"`)+" / ("+total(consumed, inTopic)+" > 0)", 0.05, 0.5),
		stat("Lag", "Offsets to the ends of all partitions.", number, "sum(max by ("+byPartition+", messaging_consumer_group_name) (idem_partition_lag{"+inTopic+"})) or vector(0)", 10_000, 1_000_000),
		stat("Dead letters", "Events that were given up in the time that is shown.", number, during("idem_dead_letters_total", inTopic), 1, 100),
		stat("In flight", "Events in calls of handlers that go on now.", number, "sum(idem_handlers_in_flight{"+inGroup+"}) or vector(0)", 0, 0),
		stat("Stuck", "Partitions that rest although they have something to do.", number, "sum(idem_partition_stalled{"+inTopic+"}) or vector(0)", 0, 1),
		stat("Stores away", "Stores, and producers of dead letters, that cannot be reached: nothing is handled meanwhile.", number,
			"sum(idem_store_down{"+inGroup+"}) or vector(0)", 0, 1),
	}},
	{"Duplicates", []panel{
		layers("Deliveries by outcome", "What became of each delivery. Later: it waits for another attempt, in a retry topic or the store.", perSecond,
			target{pace(consumed, inTopic, byOutcome), "{{idem_outcome}}"}),
		layers("Duplicates by cause", "The same record again comes of rebalances, restarts and rewinds; a copy elsewhere in the log, of producers.", perSecond,
			target{pace("idem_duplicates_total", inTopic, "idem_duplicate_cause"), "{{idem_duplicate_cause}}"}),
		graph("Age of copies", "Time between the record that was handled and its copy. Above the store's retention they would be handled again.", seconds,
			quantiles("idem_duplicate_age_seconds", inTopic, "", "0.5", "0.9", "0.99")...),
		graph("Share of duplicates by topic", "Of the deliveries. A step up is a producer that repeats itself, or a rewind.", share, target{
			pace("idem_duplicates_total", inTopic, "messaging_destination_name") + " / " + pace(consumed, inTopic, "messaging_destination_name"), "{{messaging_destination_name}}",
		}).limits(0.05, 0),
		graph("Duplicates by type", "Of which type of event.", perSecond, target{pace("idem_duplicates_total", inTopic, byType), "{{idem_event_type}}"}),
		graph("Duplicates by verdict", "What the store knows of them: done, or dead, moved to a later attempt, in conflict with another content.", perSecond,
			target{pace("idem_duplicates_total", inTopic, "idem_verdict"), "{{idem_verdict}}"}),
		graph("Copies with another content", "They have the ID of an event that says something else.", perSecond,
			target{pace("idem_conflicts_total", inTopic, byType), "{{idem_event_type}}"}),
	}},
	{"Handlers", []panel{
		graph("Duration", "Of calls of handlers.", seconds, quantiles(process, inTopic, "", "0.5", "0.95", "0.99")...),
		graph("Duration by type", "95th percentile.", seconds, quantiles(process, inTopic, byType, "0.95")...),
		layers("Calls", "By type of event. A handler of batches has many events in one.", perSecond,
			target{pace(process+"_count", inTopic, byType), "{{idem_event_type}}"}),
		layers("Failures by class", "Calls that failed, by error.type.", perSecond,
			target{pace(process+"_count", inTopic+`,error_type!=""`, "error_type"), "{{error_type}}"}),
		graph("Events in a call", "How large batches are.", number, quantiles("idem_call_size", inGroup, "", "0.5", "0.95")...),
		layers("In flight", "Events in calls that go on now, by type.", number,
			target{"sum by (" + byType + ") (idem_handlers_in_flight{" + inGroup + "})", "{{idem_event_type}}"}),
		graph("Handlers that hang, events held elsewhere", "Hung: beyond the time-out of the handler. Busy: held by another worker for more than two leases.", perSecond,
			target{pace("idem_handler_stalls_total", inGroup, "idem_stall_kind, idem_event_type"), "{{idem_stall_kind}} {{idem_event_type}}"}),
	}},
	{"Store", []panel{
		graph("Duration", "95th percentile of its calls. A transaction has its handlers in it.", seconds, quantiles(storeCall, inGroup, "idem_store_operation", "0.95")...),
		layers("Verdicts", "Its answers to claims. None is no answer, or a transaction that was rolled back.", perSecond,
			target{pace("idem_claims_total", inGroup, "idem_verdict"), "{{idem_verdict}}"}),
		graph("Busy waits", "Claims of events that another worker holds: they are asked for again.", perSecond,
			target{pace("idem_claims_total", inGroup+`,idem_verdict="busy"`, "idem_store"), "{{idem_store}}"}),
		graph("Take-overs and lost claims", "Taken over: an earlier holder died half-way. Lost: somebody else has taken over what was still being handled.", perSecond,
			target{pace("idem_claims_takeovers_total", inGroup, "idem_store"), "taken over {{idem_store}}"},
			target{pace("idem_claims_lost_total", inGroup, byType), "lost {{idem_event_type}}"}),
		graph("Away", "1 while a store, or the producer of dead letters, cannot be reached.", number,
			target{"max by (messaging_consumer_group_name, idem_store) (idem_store_down{" + inGroup + "})", "{{messaging_consumer_group_name}} {{idem_store}}"},
			target{pace("idem_store_outages_total", inGroup, "idem_store") + " * 3600", "outages an hour {{idem_store}}"}).limits(0, 1),
		layers("Failed calls", "By operation and error.type.", perSecond,
			target{pace(storeCall+"_count", inGroup+`,error_type!=""`, "idem_store_operation, error_type"), "{{idem_store_operation}} {{error_type}}"}),
		graph("Events in a run", "How many claims share a round trip, or a transaction.", number, quantiles("idem_run_size", inGroup, "", "0.5", "0.95")...),
	}},
	{"Partitions", []panel{
		graph("Lag", "Offsets between the watermark and the end of the log.", number,
			target{"max by (" + byPartition + ") (idem_partition_lag{" + inTopic + "})", partition}),
		graph("Watermark distance", "Records that were fetched and that the watermark does not cover yet: as many may come again after a crash, and are found in the store.", number,
			target{"max by (" + byPartition + ") (idem_partition_pending{" + inTopic + "})", partition}),
		graph("Stalled", "1 while a partition rests although it has something to do.", number,
			target{"max by (" + byPartition + ") (idem_partition_stalled{" + inTopic + "})", partition},
			target{pace("idem_partition_stalls_total", inTopic, "messaging_destination_name") + " * 3600", "stalls an hour {{messaging_destination_name}}"}).limits(0, 1),
		layers("Assigned", "Partitions of each process.", number,
			target{"sum by (instance, messaging_consumer_group_name) (idem_partitions_assigned{" + inGroup + "})", "{{messaging_consumer_group_name}} {{instance}}"}),
		layers("Rebalances", "Lost: the group took the member for dead.", perSecond,
			target{pace("idem_rebalances_total", inGroup, "idem_rebalance_kind"), "{{idem_rebalance_kind}}"}),
		graph("Commits", "95th percentile of their duration.", seconds,
			quantiles(operation, inGroup+`,messaging_operation_name="commit"`, "messaging_consumer_group_name", "0.95")...),
		graph("Commit failures", "By error.type. What is not committed comes again, and is found in the store.", perSecond,
			target{pace(operation+"_count", inGroup+`,messaging_operation_name="commit",error_type!=""`, "messaging_consumer_group_name, error_type"), "{{messaging_consumer_group_name}} {{error_type}}"}),
		graph("Gaps, silences, missing topics", "Gap: committed offsets that are no longer in the log, or a log that was cut. Silence: records are there and do not arrive.", number,
			target{pace("idem_offset_gaps_total", inTopic, "messaging_destination_name, idem_gap_policy") + " * 3600", "gaps an hour {{messaging_destination_name}} {{idem_gap_policy}}"},
			target{pace("idem_partition_silences_total", inTopic, "messaging_destination_name") + " * 3600", "silences an hour {{messaging_destination_name}}"},
			target{"max by (messaging_destination_name) (idem_topics_missing{" + inTopic + "})", "missing {{messaging_destination_name}}"}).limits(0, 1),
	}},
	{"Failures", []panel{
		layers("Retries by kind", "In place they hold up their partition; in a topic or deferred in the store they do not. Behind: an event that waits for one of its key.", perSecond,
			target{pace("idem_retries_total", inTopic, "idem_retry_kind"), "{{idem_retry_kind}}"}),
		layers("Retries by type", "Of which type of event, and why.", perSecond,
			target{pace("idem_retries_total", inTopic, "idem_event_type, error_type"), "{{idem_event_type}} {{error_type}}"}),
		layers("Dead letters by class", "The cause: the handler, its retry policy, the run, the record, the store.", perSecond,
			target{pace("idem_dead_letters_total", inTopic, "idem_dead_letter_class"), "{{idem_dead_letter_class}}"}),
		layers("Dead letters without value", "Records too large for the topic of dead letters: read them in their own topic before it deletes them.", perSecond,
			target{pace("idem_dead_letters_omitted_total", inTopic, "messaging_destination_name"), "{{messaging_destination_name}}"}),
		layers("Later attempts from the store", "Events that had waited there, by what became of them.", perSecond,
			target{pace("idem_deferred_total", inTopic, byOutcome), "{{idem_outcome}}"}),
		layers("Skipped", "Messages that nobody handles: tombstones, types without a handler, and records without an ID.", perSecond,
			target{pace("idem_skipped_total", inTopic, "idem_skipped_reason"), "{{idem_skipped_reason}}"}),
		graph("Circuit breakers", "Handlers whose events wait for a dependency that is down.", number,
			target{"sum by (idem_event_type) (idem_breakers_open{" + inGroup + "})", "{{idem_event_type}}"}).limits(0, 1),
		layers("Without protection", "Events whose handler ran without the store: no ID, or the store was away. A copy has its effect again.", perSecond,
			target{pace("idem_unprotected_total", inTopic, "idem_unprotected_reason"), "{{idem_unprotected_reason}}"}),
	}},
	{"Outbox", []panel{
		graph("Backlog", "Rows that wait to be published; no more than 10,000 are counted.", number,
			target{"max by (job, idem_outbox_name) (idem_outbox_backlog{" + inJob + "})", box}).limits(5000, 10_000),
		graph("Age of the oldest row", "The one number that says all is well.", seconds,
			target{"max by (job, idem_outbox_name) (idem_outbox_backlog_age_seconds{" + inJob + "})", box}).limits(10, 60),
		graph("Delay", "From adding an event to the broker's acknowledgement.", seconds, quantiles("idem_outbox_delay_seconds", inSent, "", "0.5", "0.95", "0.99")...),
		graph("Parked and blocked", "Rows that the broker refuses for good, and those behind them: only a person ends it.", number,
			target{"max by (job, idem_outbox_name) (idem_outbox_parked{" + inJob + "})", "parked " + box},
			target{"max by (job, idem_outbox_name) (idem_outbox_blocked{" + inJob + "})", "blocked " + box}).limits(0, 1),
		layers("Rows by outcome", "Failed ones are tried again; blocked ones are behind a parked one.", perSecond,
			target{pace("idem_outbox_rows_total", inJob, "idem_outbox_outcome"), "{{idem_outbox_outcome}}"}),
		graph("Added and sent", "Rows that were written, and that were given to the producer. What is sent twice is a copy.", perSecond,
			target{pace("idem_outbox_added_total", inSent, "messaging_destination_name"), "added {{messaging_destination_name}}"},
			target{pace("messaging_client_sent_messages_total", inSent, "messaging_destination_name, error_type"), "sent {{messaging_destination_name}} {{error_type}}"}),
		layers("Shards by relay", "Of 64. None: nothing is published.", number,
			target{"sum by (instance, job, idem_outbox_name) (idem_outbox_shards{" + inJob + "})", "{{instance}} " + box}),
		graph("Sends", "95th percentile of what a call of the producer takes.", seconds, quantiles(operation, inSent+`,messaging_operation_name="send"`, "", "0.95")...),
		layers("Batches with an error", "Of the broker or the database, by error.type.", perSecond,
			target{pace("idem_outbox_errors_total", inJob, "job, idem_outbox_name, error_type"), box + " {{error_type}}"}),
	}},
	{"HTTP and functions", []panel{
		layers("Requests by outcome", "With an Idempotency-Key. Replayed is the answer to an earlier request with the key.", perSecond,
			target{pace("idem_http_requests_total", inJob, "idem_http_outcome"), "{{idem_http_outcome}}"}),
		graph("Nobody knows", "Requests that are told that their outcome is not known, and answers that the store did not take.", perSecond,
			target{pace("idem_http_requests_total", inJob+`,idem_http_outcome=~"unknown_outcome|unstored"`, "job, idem_http_outcome"), "{{job}} {{idem_http_outcome}}"}),
		graph("Waits", "95th percentile: for the store, and for another request with the same key.", seconds, quantiles("idem_http_wait_duration_seconds", inJob, "idem_http_outcome", "0.95")...),
		layers("Sent by clients", "Requests that httpidem.Transport has sent under a key, and further attempts of them.", perSecond,
			target{pace("idem_http_client_requests_total", inJob, "idem_http_client_outcome"), "{{idem_http_client_outcome}}"},
			target{pace("idem_http_client_resends_total", inJob, "idem_http_client_outcome"), "resent, then {{idem_http_client_outcome}}"}),
		layers("Functions by outcome", "Calls of dedup.Do and DoTx.", perSecond,
			target{pace("idem_do_calls_total", inJob, "idem_do_outcome"), "{{idem_do_outcome}}"}),
		graph("Waits of functions", "95th percentile: for the store, and for other callers of the key.", seconds, quantiles("idem_do_wait_duration_seconds", inJob, "idem_do_outcome", "0.95")...),
	}},
}
