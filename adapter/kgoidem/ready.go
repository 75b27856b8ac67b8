package kgoidem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/idem-go/idem/runner"
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
func (r *Runner) Ready() error {
	var reasons []string
	add := func(format string, args ...any) {
		reasons = append(reasons, fmt.Sprintf(format, args...))
	}
	r.mu.Lock()
	m := r.current
	r.mu.Unlock()
	for _, topic := range r.topics.Missing() {
		add("topic %s does not exist any longer", topic)
	}
	if err := r.Err(); err != nil {
		add("stopped: %s", r.cfg.Text(err))
	} else if m == nil || !m.isIn() {
		add("not in the group")
	}
	status := r.proc.Status()
	for _, name := range status.Down {
		add("%s is down", name)
	}
	for _, name := range status.OpenBreakers {
		add("the circuit breaker of handler %s is open", name)
	}
	if m != nil {
		for _, a := range m.list() {
			if since, ok := a.lane.Stalled(); ok && time.Since(since) > r.cfg.StallTimeout {
				add("%s/%d has not moved for %s", a.Topic, a.Partition, time.Since(since).Round(time.Second))
			}
		}
	}
	if status.MostlyUnhandled {
		add("most of the last events were of types without a handler")
	}
	if status.Abandoned > 0 {
		add("%d handlers hang and were left behind", status.Abandoned)
	}
	if len(reasons) == 0 {
		return nil
	}
	slices.Sort(reasons)
	return &runner.NotReadyError{Reasons: reasons}
}

// isIn reports whether the member is in the group.
func (m *member) isIn() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inGroup && m.ctx.Err() == nil
}

// Live returns nil as long as waiting may help. The error is a [*runner.NotLiveError] when only a
// new process can help: Run has ended, or is about to. Before Run it is nil.
//
// Live does not fail because Kafka or a store is down, or a partition is stalled. A restart would
// not help, and would stop other work. To restart after a stall, choose [runner.ExitOnStall].
func (r *Runner) Live() error {
	if r.ended.Load() {
		return &runner.NotLiveError{Reason: "Run has ended"}
	}
	if err := r.Err(); err != nil {
		return &runner.NotLiveError{Reason: "Run is about to end: " + r.cfg.Text(err)}
	}
	return nil
}

// Handler serves [Runner.Ready] as a readiness probe: status 200, or 503 with the reasons, in JSON.
// The answer contains names of topics, and no payloads or credentials. Mount the handler where only
// the probe can reach it.
func (r *Runner) Handler() http.Handler {
	type answer struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons,omitempty"`
	}
	return probe(func() (any, bool) {
		var not *runner.NotReadyError
		if errors.As(r.Ready(), &not) {
			return answer{Reasons: not.Reasons}, false
		}
		return answer{Ready: true}, true
	})
}

// LiveHandler serves [Runner.Live] as a liveness probe, like [Runner.Handler].
func (r *Runner) LiveHandler() http.Handler {
	type answer struct {
		Live   bool   `json:"live"`
		Reason string `json:"reason,omitempty"`
	}
	return probe(func() (any, bool) {
		var not *runner.NotLiveError
		if errors.As(r.Live(), &not) {
			return answer{Reason: not.Reason}, false
		}
		return answer{Live: true}, true
	})
}

func probe(ask func() (answer any, good bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer, good := ask()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !good {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(answer) // fails if the prober has gone
	})
}
