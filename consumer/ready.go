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
// the group (yet, or during a rebalance), a ledger or the producer down, a partition that rests for StallTimeout (K-13),
// most events of types nobody handles (rule 47), handlers that hang. A member without partitions is ready.
func (c *Consumer) Ready() error { return c.handler.ready() }

// Ready is what [Consumer.Ready] is.
func (h *GroupHandler) Ready() error { return h.ready() }

func (h *GroupHandler) ready() error {
	var reasons []string
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if err := h.Err(); err != nil {
		add("stopped: %v", err)
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
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer := struct {
			Ready   bool     `json:"ready"`
			Reasons []string `json:"reasons,omitempty"`
		}{Ready: true}
		status := http.StatusOK
		var not *NotReadyError
		if errors.As(c.Ready(), &not) {
			answer.Ready, answer.Reasons, status = false, not.Reasons, http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // the prober has gone
	})
}
