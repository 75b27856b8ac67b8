package consumer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Ready returns nil if the consumer is in the group and works, and a [*NotReadyError] with all reasons otherwise: not in
// the group (yet, or during a rebalance), a store or the producer down, a partition that rests for StallTimeout (K-13),
// most events of types nobody handles (rule 47), handlers that hang, a topic that was deleted (K-27). A member without
// partitions is ready.
func (c *Consumer) Ready() error { return c.handler.ready(c.topics.missing()...) }

// Live returns nil as long as waiting may help, and a [*NotLiveError] once only a new process can: Run has ended, or is about
// to. Before Run it is nil. It does not turn red because Kafka or a store is down, or a partition is stalled: a restart would
// mend none of it, and take other work along. For a restart on a stall choose [ExitOnStall].
func (c *Consumer) Live() error {
	if c.ended.Load() {
		return &NotLiveError{Reason: "Run has ended"}
	}
	if err := c.handler.Err(); err != nil {
		return &NotLiveError{Reason: "Run is about to end: " + c.cfg.errorText(err)}
	}
	return nil
}

// Ready is what [Consumer.Ready] is.
func (h *GroupHandler) Ready() error { return h.ready() }

func (h *GroupHandler) ready(missing ...string) error {
	var reasons []string
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
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
	for _, c := range h.claims() {
		if since, ok := c.lane.Stalled(); ok && time.Since(since) > h.cfg.StallTimeout {
			add("%s/%d has not moved for %s", c.topic, c.id, time.Since(since).Round(time.Second))
		}
	}
	if status.MostlyUnhandled {
		add("most of the last events were of types that nobody handles")
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

// Handler serves [Consumer.Ready] as a readiness probe: 200, or 503 with the reasons, in JSON either way. It shows no
// payload and no credentials, but names of topics: mount it where only the probe gets to it.
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

// LiveHandler serves [Consumer.Live] as a liveness probe, like Handler.
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
		_ = json.NewEncoder(w).Encode(answer) // the prober has gone
	})
}
