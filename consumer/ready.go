package consumer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
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
func (c *Consumer) Ready() error { return c.handler.ready(c.topics.Missing()...) }

// Live returns nil as long as waiting may help. The error is a [*NotLiveError] when only a new
// process can help: Run has ended, or is about to. Before Run it is nil.
//
// Live does not fail because Kafka or a store is down, or a partition is stalled. A restart would
// not help, and would stop other work. To restart after a stall, choose [ExitOnStall].
func (c *Consumer) Live() error {
	if c.ended.Load() {
		return &NotLiveError{Reason: "Run has ended"}
	}
	if err := c.handler.Err(); err != nil {
		return &NotLiveError{Reason: "Run is about to end: " + c.cfg.errorText(err)}
	}
	return nil
}

// Ready returns nil if the handler has a session and works, like [Consumer.Ready].
func (h *GroupHandler) Ready() error { return h.ready() }

func (h *GroupHandler) ready(missing ...string) error {
	var reasons []string
	add := func(format string, args ...any) {
		reasons = append(reasons,
			fmt.Sprintf(format, args...))
	}
	for _, topic := range missing {
		add("topic %s does not exist any longer", topic)
	}
	if err := h.Err(); err != nil {
		add("stopped: %s", h.cfg.errorText(err))
	} else if !h.joined() {
		add("not in the group")
	}
	status := h.proc.Status()
	for _, name := range status.Down {
		add("%s is down", name)
	}
	for _, name := range status.OpenBreakers {
		add("the circuit breaker of handler %s is open", name)
	}
	for _, a := range h.claims() {
		if since, ok := a.lane.Stalled(); ok && time.Since(since) > h.cfg.StallTimeout {
			add("%s/%d has not moved for %s", a.topic, a.id, time.Since(since).Round(time.Second))
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
	return &NotReadyError{Reasons: reasons}
}

// Handler serves [Consumer.Ready] as a readiness probe: status 200, or 503 with the reasons, in
// JSON. The answer contains names of topics, and no payloads or credentials. Mount the handler
// where only the probe can reach it.
func (c *Consumer) Handler() http.Handler {
	type answer struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons,omitempty"`
	}
	return probe(func() (any, bool) {
		var not *NotReadyError
		if errors.As(c.Ready(), &not) {
			return answer{Reasons: not.Reasons}, false
		}
		return answer{Ready: true}, true
	})
}

// LiveHandler serves [Consumer.Live] as a liveness probe, like [Consumer.Handler].
func (c *Consumer) LiveHandler() http.Handler {
	type answer struct {
		Live   bool   `json:"live"`
		Reason string `json:"reason,omitempty"`
	}
	return probe(func() (any, bool) {
		var not *NotLiveError
		if errors.As(c.Live(), &not) {
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
