package consumer

import (
	"net/http"
)

// Ready returns nil if the consumer is in the group and works. Otherwise Ready returns a
// [*NotReadyError] with all reasons:
//   - The consumer is not in the group, not yet or during a rebalance.
//   - A store or the producer is down.
//   - A partition has rested for StallTimeout.
//   - Most of the last events have types without a handler.
//   - Handlers hang.
//   - A topic was deleted.
//
// A member without partitions is ready.
func (c *Consumer) Ready() error { return c.life.Ready() }

// Live returns nil as long as waiting may help. The error is a [*NotLiveError] when only a new
// process can help: Run has ended, or is about to. Before Run it is nil.
//
// Live does not fail because Kafka or a store is down, or a partition is stalled. A restart would
// not help, and would stop other work. To restart after a stall, choose [ExitOnStall].
func (c *Consumer) Live() error { return c.life.Live() }

// Ready returns nil if the handler has a session and works, like [Consumer.Ready].
func (h *GroupHandler) Ready() error { return h.g.Ready() }

// Handler serves [Consumer.Ready] as a readiness probe: status 200, or 503 with the reasons, in
// JSON. The answer contains names of topics, and no payloads or credentials. Mount the handler
// where only the probe can reach it.
func (c *Consumer) Handler() http.Handler { return c.life.Handler() }

// LiveHandler serves [Consumer.Live] as a liveness probe, like [Consumer.Handler].
func (c *Consumer) LiveHandler() http.Handler { return c.life.LiveHandler() }
