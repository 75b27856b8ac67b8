package dashboards

import (
	"strings"
	"time"
)

// The end of a play, if it is not the text of the alert.
const (
	never   = ""
	nowOver = "it did fire, and does no longer"
)

// aplay is a piece for one alert: series, a value each minute, until some time.
type aplay struct {
	alert, name string
	load        string
	until       time.Duration
	says        string
}

// series spells out the abbreviations of the plays below.
func (p aplay) series() string {
	return "load 1m\n\t" + strings.NewReplacer(
		"PARTITION", `job="orders",instance="a:1",messaging_consumer_group_name="orders",messaging_destination_name="payments",messaging_destination_partition_id="3"`,
		"WAITS", `job="orders",instance="a:1",messaging_consumer_group_name="orders",messaging_destination_name="payments.orders.retry.1h",messaging_destination_partition_id="3"`,
		"LATER", `job="orders",instance="a:1",messaging_consumer_group_name="orders",messaging_destination_name="payments.orders.retry.1h"`,
		"TOPIC", `job="orders",instance="a:1",messaging_consumer_group_name="orders",messaging_destination_name="payments"`,
		"GROUP", `job="orders",instance="a:1",messaging_consumer_group_name="orders"`,
		"JOB", `job="orders",instance="a:1"`,
		"CONSUMED", "messaging_client_consumed_messages_total",
		"HANDLER", "messaging_process_duration_seconds_count",
		"COMMITS", "messaging_client_operation_duration_seconds_count",
	).Replace(strings.TrimSpace(p.load))
}

// In Prometheus' notation 5+2x3 is 5 7 9 11, 5x3 is 5 5 5 5, and _x3 is three times without a
// value.
var plays = []aplay{
	{"IdemLagGrows", "faster than the work", `
		idem_partition_lag{PARTITION} 5000+100x60
		CONSUMED{TOPIC,idem_outcome="handled"} 0+60x60
	`, time.Hour, "Lag of orders on payments grows: 11k offsets, more than a quarter of an hour ago, and more than ten minutes of work at the present pace."},
	{"IdemLagGrows", "the sum over partitions counts", `
		idem_partition_lag{PARTITION} 700+10x60
		idem_partition_lag{TOPIC,messaging_destination_partition_id="4"} 700+10x60
		CONSUMED{TOPIC,idem_outcome="handled"} 0+6x60
	`, time.Hour, "Lag of orders on payments grows: 2.6k offsets, more than a quarter of an hour ago, and more than ten minutes of work at the present pace."},
	{"IdemLagGrows", "it gets less", `
		idem_partition_lag{PARTITION} 50000-100x60
		CONSUMED{TOPIC,idem_outcome="handled"} 0+60x60
	`, time.Hour, never},
	{"IdemLagGrows", "a minute of work", `
		idem_partition_lag{PARTITION} 5000+10x60
		CONSUMED{TOPIC,idem_outcome="handled"} 0+6000x60
	`, time.Hour, never},
	{"IdemLagGrows", "little", `
		idem_partition_lag{PARTITION} 0+10x60
		CONSUMED{TOPIC,idem_outcome="handled"} 0+1x60
	`, time.Hour, never},
	{"IdemLagGrows", "they wait for their time", `
		idem_partition_lag{WAITS} 5000+100x60
		CONSUMED{LATER,idem_outcome="handled"} 0+60x60
	`, time.Hour, never},

	{"IdemConsumesNothing", "it stands still", `
		idem_partition_lag{PARTITION} 500x60
		CONSUMED{TOPIC,idem_outcome="handled"} 100x60
	`, time.Hour, "orders consumes nothing of payments although there is something: A partition has 500 offsets to go, and nothing was settled in ten minutes."},
	{"IdemConsumesNothing", "it never began", `
		idem_partition_lag{PARTITION} 500x60
	`, time.Hour, "orders consumes nothing of payments although there is something: A partition has 500 offsets to go, and nothing was settled in ten minutes."},
	{"IdemConsumesNothing", "slow", `
		idem_partition_lag{PARTITION} 500x60
		CONSUMED{TOPIC,idem_outcome="handled"} 100x9 101x9 102x9 103x9 104x9 105x9
	`, 58 * time.Minute, never},
	{"IdemConsumesNothing", "it has just begun", `
		idem_partition_lag{PARTITION} 500x60
		CONSUMED{TOPIC,idem_outcome="handled"} _x18 1x40
	`, 20 * time.Minute, nowOver},
	{"IdemConsumesNothing", "the end of a transaction", `
		idem_partition_lag{PARTITION} 1x60
		CONSUMED{TOPIC,idem_outcome="handled"} 100x60
	`, time.Hour, never},

	{"IdemConsumesNothing", "it waits for its time", `
		idem_partition_lag{WAITS} 500x60
		CONSUMED{TOPIC,idem_outcome="rescheduled"} 100x60
	`, time.Hour, never},

	{"IdemPartitionStalled", "it stays", `idem_partition_stalled{PARTITION} 0x9 1x20`, 20 * time.Minute,
		"Partition payments/3 of orders does not move: It has something to do, and has rested for longer than StallTimeout."},
	{"IdemPartitionStalled", "it moves again", `idem_partition_stalled{PARTITION} 0x9 1 1 0x20`, 20 * time.Minute, never},

	{"IdemWatermarkStuck", "one event", `
		idem_partition_pending{PARTITION} 500x60
		idem_partition_lag{PARTITION} 500+10x60
	`, time.Hour, "The watermark of payments/3 does not move: 500 records wait behind one that is not settled. Those that are come again after a restart, and are found in the store."},
	{"IdemWatermarkStuck", "as full as ever, and on its way", `
		idem_partition_pending{PARTITION} 500x60
		idem_partition_lag{PARTITION} 9000-10x60
	`, time.Hour, never},
	{"IdemWatermarkStuck", "some are settled", `
		idem_partition_pending{PARTITION} 500 450 500 480 500 490 460 500 500 450 500 480 500 490 460 500 500 450 500 480 500 490 460 500 500 450 500
		idem_partition_lag{PARTITION} 500+10x60
	`, 26 * time.Minute, never},
	{"IdemWatermarkStuck", "nothing is fetched", `
		idem_partition_pending{PARTITION} 0x60
		idem_partition_lag{PARTITION} 0x60
	`, time.Hour, never},
	{"IdemWatermarkStuck", "it waits for its time", `
		idem_partition_pending{WAITS} 500x60
		idem_partition_lag{WAITS} 500+10x60
	`, time.Hour, never},
	{"IdemWatermarkStuck", "it has just begun", `
		idem_partition_pending{PARTITION} 500x10
		idem_partition_lag{PARTITION} 500x10
	`, 10 * time.Minute, never},

	{"IdemCommitsFail", "each", `
		COMMITS{GROUP,messaging_operation_name="commit",messaging_operation_type="settle",error_type="network"} 0+12x30
	`, 30 * time.Minute, "Commits of orders fail: 120 in ten minutes. After a restart as much comes again, and is found in the store."},
	{"IdemCommitsFail", "one", `
		COMMITS{GROUP,messaging_operation_name="commit",messaging_operation_type="settle",error_type="network"} 0x9 1x20
		COMMITS{GROUP,messaging_operation_name="commit",messaging_operation_type="settle"} 0+12x30
	`, 15 * time.Minute, never},
	{"IdemCommitsFail", "sending does", `
		COMMITS{JOB,messaging_operation_name="send",messaging_operation_type="send",error_type="network"} 0+12x30
	`, 30 * time.Minute, never},

	{"IdemPartitionsLost", "again and again", `
		idem_rebalances_total{GROUP,idem_rebalance_kind="lost"} _x5 1x9 2x9 3x9 4x9
	`, 33 * time.Minute, "Members of orders lose their partitions: 3 times in half an hour, without a revocation: the group took them for dead."},
	{"IdemPartitionsLost", "again, much later", `
		idem_rebalances_total{GROUP,idem_rebalance_kind="lost"} 1x60 4x30
	`, 70 * time.Minute, "Members of orders lose their partitions: 3 times in half an hour, without a revocation: the group took them for dead."},
	{"IdemPartitionsLost", "a deployment", `
		idem_rebalances_total{GROUP,idem_rebalance_kind="lost"} _x5 1x40
		idem_rebalances_total{GROUP,idem_rebalance_kind="revoked"} 0+3x45
	`, 33 * time.Minute, never},

	{"IdemPartitionSilent", "again", `
		idem_partition_silences_total{TOPIC} _x5 1x9 2x40
	`, 40 * time.Minute, "Partitions of payments go silent: 2 times in an hour records were there and did not arrive, and orders was joined anew."},
	{"IdemPartitionSilent", "again, much later", `
		idem_partition_silences_total{TOPIC} 1x80 3x40
	`, 100 * time.Minute, "Partitions of payments go silent: 2 times in an hour records were there and did not arrive, and orders was joined anew."},
	{"IdemPartitionSilent", "once", `
		idem_partition_silences_total{TOPIC} _x5 1x60
	`, 40 * time.Minute, never},

	{"IdemOffsetsGap", "the first there ever was", `
		idem_offset_gaps_total{TOPIC,idem_gap_policy="fail"} _x5 1x60
	`, 30 * time.Minute, "Records of payments are gone that orders has not seen: The committed offset of a partition is no longer in the log, or the log was cut below it."},
	{"IdemOffsetsGap", "another one", `
		idem_offset_gaps_total{TOPIC,idem_gap_policy="earliest"} 1x100 2x60
	`, 130 * time.Minute, "Records of payments are gone that orders has not seen: The committed offset of a partition is no longer in the log, or the log was cut below it."},
	{"IdemOffsetsGap", "hours ago", `
		idem_offset_gaps_total{TOPIC,idem_gap_policy="fail"} _x5 1x300
	`, 4 * time.Hour, nowOver},

	{"IdemTopicMissing", "deleted", `idem_topics_missing{TOPIC} _x5 1x30`, 20 * time.Minute,
		"Topic payments must not be read, or was deleted: orders consumes its other topics meanwhile. Check the ACL for Read first."},
	{"IdemTopicMissing", "it is back", `idem_topics_missing{TOPIC} _x5 1 1 0x30`, 20 * time.Minute, never},

	{"IdemDeadLetters", "the first there ever was", `
		idem_dead_letters_total{TOPIC,idem_dead_letter_class="permanent"} _x5 1x60
	`, 10 * time.Minute, "orders gives up events of payments: 1 dead letters of class permanent in a quarter of an hour."},
	{"IdemDeadLetters", "more of them", `
		idem_dead_letters_total{TOPIC,idem_dead_letter_class="timeout"} 0+1x60
	`, time.Hour, "orders gives up events of payments: 15 dead letters of class timeout in a quarter of an hour."},
	{"IdemDeadLetters", "those are settled", `
		idem_dead_letters_total{TOPIC,idem_dead_letter_class="permanent"} _x5 7x60
	`, time.Hour, nowOver},

	{"IdemHandlersFail", "most", `
		HANDLER{TOPIC,idem_event_type="payment.completed",error_type="_OTHER"} 0+90x40
		HANDLER{TOPIC,idem_event_type="payment.completed"} 0+10x40
	`, 30 * time.Minute, "Most calls of the handler of payment.completed fail: 90% of the calls of orders in ten minutes."},
	{"IdemHandlersFail", "some", `
		HANDLER{TOPIC,idem_event_type="payment.completed",error_type="_OTHER"} 0+10x40
		HANDLER{TOPIC,idem_event_type="payment.completed"} 0+90x40
	`, 30 * time.Minute, never},
	{"IdemHandlersFail", "nothing is called", `
		HANDLER{TOPIC,idem_event_type="payment.completed",error_type="_OTHER"} 90x40
		HANDLER{TOPIC,idem_event_type="payment.completed"} 10x40
	`, 30 * time.Minute, never},

	{"IdemHandlersHang", "one", `
		idem_handler_stalls_total{GROUP,idem_event_type="payment.completed",idem_stall_kind="hung"} _x5 1x60
	`, 10 * time.Minute, "The handler of payment.completed ignores its time-out: 1 events of orders in a quarter of an hour; their partitions wait."},
	{"IdemHandlersHang", "another one", `
		idem_handler_stalls_total{GROUP,idem_event_type="payment.completed",idem_stall_kind="hung"} 1x40 2x20
		idem_handler_stalls_total{GROUP,idem_event_type="order.paid",idem_stall_kind="busy"} 1x40 2x20
	`, 45 * time.Minute, "The handler of payment.completed ignores its time-out: 1 events of orders in a quarter of an hour; their partitions wait."},
	{"IdemHandlersHang", "it is held elsewhere", `
		idem_handler_stalls_total{GROUP,idem_event_type="payment.completed",idem_stall_kind="busy"} _x5 1x60
	`, 10 * time.Minute, never},

	{"IdemDuplicatesUnusual", "a producer repeats itself", `
		idem_duplicates_total{TOPIC,idem_event_type="a",idem_duplicate_cause="copy",idem_verdict="done"} 0+1x1500 1500+50x60
		CONSUMED{TOPIC,idem_outcome="handled"} 0+100x1560
	`, 1560 * time.Minute, "More duplicates of payments than usual: 50% of what orders gets was handled before. They are skipped; the question is who sends them."},
	{"IdemDuplicatesUnusual", "as ever", `
		idem_duplicates_total{TOPIC,idem_event_type="a",idem_duplicate_cause="copy",idem_verdict="done"} 0+50x1560
		CONSUMED{TOPIC,idem_outcome="handled"} 0+100x1560
	`, 1560 * time.Minute, never},
	{"IdemDuplicatesUnusual", "unusual and few", `
		idem_duplicates_total{TOPIC,idem_event_type="a",idem_duplicate_cause="copy",idem_verdict="done"} 0x1500 0+4x60
		CONSUMED{TOPIC,idem_outcome="handled"} 0+100x1560
	`, 1560 * time.Minute, never},

	{"IdemTypesSkipped", "a type was renamed", `
		idem_skipped_total{TOPIC,idem_skipped_reason="no_handler"} 0+9x90
		CONSUMED{TOPIC,idem_outcome="skipped"} 0+9x90
		CONSUMED{TOPIC,idem_outcome="handled"} 0+1x90
	`, time.Hour, "orders skips most of payments: 90% of the events have a type that nobody handles."},
	{"IdemTypesSkipped", "tombstones", `
		idem_skipped_total{TOPIC,idem_skipped_reason="tombstone"} 0+9x90
		CONSUMED{TOPIC,idem_outcome="skipped"} 0+9x90
		CONSUMED{TOPIC,idem_outcome="handled"} 0+1x90
	`, time.Hour, never},
	{"IdemTypesSkipped", "some", `
		idem_skipped_total{TOPIC,idem_skipped_reason="no_handler"} 0+1x90
		CONSUMED{TOPIC,idem_outcome="skipped"} 0+1x90
		CONSUMED{TOPIC,idem_outcome="handled"} 0+9x90
	`, time.Hour, never},

	{"IdemStoreDown", "it stays away", `idem_store_down{GROUP,idem_store="*pgstore.Store"} 0x9 1x20`, 20 * time.Minute,
		"*pgstore.Store of orders is away: Nothing is handled until it is back. Nothing is lost, and no attempt counts."},
	{"IdemStoreDown", "a moment", `idem_store_down{GROUP,idem_store="*pgstore.Store"} 0x9 1 0x20`, 20 * time.Minute, never},

	{"IdemUnprotected", "the first ones", `idem_unprotected_total{TOPIC,idem_event_type="a",idem_unprotected_reason="store_unavailable"} _x5 3x60`, 20 * time.Minute,
		"Events of type a run without their store: 3 in half an hour. orders does not know duplicates among them, and later copies run again."},
	{"IdemUnprotected", "records without an ID", `idem_unprotected_total{TOPIC,idem_event_type="a",idem_unprotected_reason="no_event_id"} _x5 3x60`, 20 * time.Minute, never},
	{"IdemUnprotected", "long ago", `idem_unprotected_total{TOPIC,idem_event_type="a",idem_unprotected_reason="store_unavailable"} _x5 3x60`, time.Hour, nowOver},

	{"IdemBreakerOpen", "it stays open", `idem_breakers_open{GROUP,idem_event_type="a"} 0x9 1x20`, 20 * time.Minute,
		"Events of type a wait for a dependency of orders: Open circuit breakers: 1. No event is given up meanwhile."},
	{"IdemBreakerOpen", "a moment", `idem_breakers_open{GROUP,idem_event_type="a"} 0x9 1x2 0x20`, 20 * time.Minute, never},

	{"IdemClaimsLost", "one", `idem_claims_lost_total{GROUP,idem_event_type="a"} _x5 1x60`, 20 * time.Minute,
		"Claims on a were lost while their handler ran: 1 in half an hour. Another worker of orders may have repeated what they did."},
	{"IdemClaimsLost", "another one", `idem_claims_lost_total{GROUP,idem_event_type="a"} 1x60 2x20`, 70 * time.Minute,
		"Claims on a were lost while their handler ran: 1 in half an hour. Another worker of orders may have repeated what they did."},
	{"IdemClaimsLost", "long ago", `idem_claims_lost_total{GROUP,idem_event_type="a"} _x5 1x60`, time.Hour, nowOver},

	{"IdemTakeovers", "a loop of crashes", `idem_claims_takeovers_total{GROUP,idem_store="*redisstore.Store"} _x5 1+1x60`, 50 * time.Minute,
		"Workers of orders die half-way: 30 events in half an hour were taken over from a holder that did not finish."},
	{"IdemTakeovers", "one crash", `idem_claims_takeovers_total{GROUP,idem_store="*redisstore.Store"} _x5 6x60`, 20 * time.Minute, never},

	{"IdemOutboxLate", "it waits", `idem_outbox_backlog_age_seconds{JOB} 0x5 0+60x20`, 20 * time.Minute,
		"Events wait in the outbox of orders: The oldest for 14m 0s."},
	{"IdemOutboxLate", "a moment", `idem_outbox_backlog_age_seconds{JOB} 0x5 61 1x20`, 20 * time.Minute, never},

	{"IdemOutboxBacklog", "nobody keeps up", `idem_outbox_backlog{JOB} 0+1000x10 10000x20`, 25 * time.Minute,
		"The outbox of orders fills: 10k rows wait (no more than 10,000 are counted). Writers do not slow down."},
	{"IdemOutboxBacklog", "a burst", `idem_outbox_backlog{JOB} 0 9000 7000 5000 3000 0x20`, 20 * time.Minute, never},

	{"IdemOutboxParked", "a row", `
		idem_outbox_parked{JOB} 0x5 2x20
		idem_outbox_parked{job="orders",instance="b:1"} 0x5 2x20
	`, 20 * time.Minute, "Events are parked in the outbox of orders: 2 rows will not be published as they are. With Halt what is behind them waits too."},
	{"IdemOutboxParked", "a moment", `idem_outbox_parked{JOB} 0x5 2 0x20`, 20 * time.Minute, never},

	{"IdemRelayAbsent", "the process is gone", `idem_outbox_shards{JOB} 64x20 stale`, 40 * time.Minute,
		"No relay of orders holds a part of the outbox: Events wait, and nobody counts them any longer."},
	{"IdemRelayAbsent", "it has lost its share", `idem_outbox_shards{JOB} 64x20 0x30`, 40 * time.Minute,
		"No relay of orders holds a part of the outbox: Events wait, and nobody counts them any longer."},
	{"IdemRelayAbsent", "another one goes on", `
		idem_outbox_shards{JOB} 64x20 stale
		idem_outbox_shards{job="orders",instance="b:1"} 0x20 64x30
	`, 40 * time.Minute, never},
	{"IdemRelayAbsent", "a restart", `idem_outbox_shards{JOB} 64x20 stale stale 64x20`, 40 * time.Minute, never},
	{"IdemRelayAbsent", "there never was one", `idem_outbox_shards{JOB} 0x40`, 40 * time.Minute, never},

	{"IdemHTTPUnknownOutcomes", "the first there ever was", `
		idem_http_requests_total{JOB,idem_http_outcome="unstored"} _x5 1x60
	`, 15 * time.Minute, "Clients of orders are told that nobody knows what became of their requests: 1 requests in a quarter of an hour were cut off half-way, or their answers were not taken by the store."},
	{"IdemHTTPUnknownOutcomes", "another one", `
		idem_http_requests_total{JOB,idem_http_outcome="unknown_outcome"} 1x40 3x20
	`, 45 * time.Minute, "Clients of orders are told that nobody knows what became of their requests: 2 requests in a quarter of an hour were cut off half-way, or their answers were not taken by the store."},
	{"IdemHTTPUnknownOutcomes", "replays", `
		idem_http_requests_total{JOB,idem_http_outcome="replayed"} 0+10x60
		idem_http_requests_total{JOB,idem_http_outcome="executed"} 0+10x60
	`, 15 * time.Minute, never},

	{"IdemHTTPUnguarded", "the store is away", `
		idem_http_requests_total{JOB,idem_http_outcome="unguarded"} 0+60x60
	`, 20 * time.Minute, "Requests to orders run without their store: 1 a second. FailOpen lets them; only what is behind keeps them from being repeated."},
	{"IdemHTTPUnguarded", "others", `
		idem_http_requests_total{JOB,idem_http_outcome="executed"} 0+60x60
	`, 20 * time.Minute, never},
	{"IdemHTTPUnguarded", "one", `
		idem_http_requests_total{JOB,idem_http_outcome="unguarded"} 0x10 1x60
	`, 30 * time.Minute, never},
	{"IdemHTTPUnguarded", "it was", `
		idem_http_requests_total{JOB,idem_http_outcome="unguarded"} 0+60x5 300x60
	`, 30 * time.Minute, nowOver},
}
