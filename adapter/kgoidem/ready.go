package kgoidem

import (
	"net/http"
)

// Ready returns nil if the runner is in the group and works. Otherwise Ready returns a
// [*runner.NotReadyError] with all reasons:
//   - The runner is not in the group, not yet or during a rebalance.
//   - A store or the producer is down.
//   - A partition has rested for StallTimeout.
//   - Most of the last events have types without a handler.
//   - Handlers hang.
//   - A topic was deleted.
//
// A member without partitions is ready.
func (r *Runner) Ready() error { return r.life.Ready() }

// Live returns nil as long as waiting may help. The error is a [*runner.NotLiveError] when only a
// new process can help: Run has ended, or is about to. Before Run it is nil.
//
// Live does not fail because Kafka or a store is down, or a partition is stalled. A restart would
// not help, and would stop other work. To restart after a stall, choose [runner.ExitOnStall].
func (r *Runner) Live() error { return r.life.Live() }

// Handler serves [Runner.Ready] as a readiness probe: status 200, or 503 with the reasons, in JSON.
// The answer contains names of topics, and no payloads or credentials. Mount the handler where only
// the probe can reach it.
func (r *Runner) Handler() http.Handler { return r.life.Handler() }

// LiveHandler serves [Runner.Live] as a liveness probe, like [Runner.Handler].
func (r *Runner) LiveHandler() http.Handler { return r.life.LiveHandler() }
