package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Ready returns nil if the group has a session and works. Otherwise Ready returns a
// [*NotReadyError] with all reasons. missing are topics that were deleted.
func (g *Group) Ready(missing ...string) error { return g.ready(topicReasons(missing, nil)) }

// topicReasons says for each topic of gone that it was deleted, or that it is denied.
func topicReasons(gone, denied []string) (reasons []string) {
	for _, topic := range gone {
		if slices.Contains(denied, topic) {
			reasons = append(reasons, "topic "+topic+" must not be read: grant Read")
		} else {
			reasons = append(reasons, "topic "+topic+" does not exist any longer")
		}
	}
	return reasons
}

// ready returns nil or a [*NotReadyError] with these reasons and all others.
func (g *Group) ready(reasons []string) error {
	add := func(format string, args ...any) {
		reasons = append(reasons,
			fmt.Sprintf(format, args...))
	}
	if err := g.Err(); err != nil {
		add("stopped: %s", g.cfg.Text(err))
	} else if !g.Joined() {
		add("not in the group")
	}
	status := g.proc.Status()
	for _, name := range status.Down {
		add("%s is down", name)
	}
	for _, name := range status.OpenBreakers {
		add("the circuit breaker of handler %s is open", name)
	}
	for _, a := range g.Assignments() {
		if since, ok := a.lane.Stalled(); ok && time.Since(since) > g.cfg.StallTimeout {
			add("%s/%d has not moved for %s", a.Topic, a.Partition, time.Since(since).Round(time.Second))
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

// Live returns nil as long as waiting may help. The error is a [*NotLiveError] when only a new
// process can help: the runner has ended, or is about to.
func (g *Group) Live(ended bool) error {
	if ended {
		return &NotLiveError{Reason: "Run has ended"}
	}
	if err := g.Err(); err != nil {
		return &NotLiveError{Reason: "Run is about to end: " + g.cfg.Text(err)}
	}
	return nil
}

// ReadyHandler serves a readiness probe: status 200, or 503 with the reasons of a [*NotReadyError],
// in JSON.
func ReadyHandler(ready func() error) http.Handler {
	type answer struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons,omitempty"`
	}
	return probe(func() (any, bool) {
		var not *NotReadyError
		if errors.As(ready(), &not) {
			return answer{Reasons: not.Reasons}, false
		}
		return answer{Ready: true}, true
	})
}

// LiveHandler serves a liveness probe: status 200, or 503 with the reason of a [*NotLiveError], in
// JSON.
func LiveHandler(live func() error) http.Handler {
	type answer struct {
		Live   bool   `json:"live"`
		Reason string `json:"reason,omitempty"`
	}
	return probe(func() (any, bool) {
		var not *NotLiveError
		if errors.As(live(), &not) {
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
