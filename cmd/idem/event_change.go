package main

import (
	"fmt"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/events"
)

func auditOf(e *events.Event, asked dedup.Key, reason string) map[string]any {
	fields := map[string]any{
		"event_id": asked.ID, "type": asked.Type, "tenant": asked.Tenant, "scope": asked.Scope,
	}
	if reason != "" {
		fields["reason"] = reason
	}
	if e == nil {
		return fields
	}
	fields["type"], fields["tenant"], fields["store"] = e.Key.Type, e.Key.Tenant, e.Store.Name
	var states []string
	for _, r := range e.Records {
		states = append(states, r.State.String())
	}
	fields["before"] = strings.Join(states, ",")
	if e.Deferred != nil {
		fields["deferred"] = fmt.Sprintf(
			"%s/%d", e.Deferred.Partition.Topic, e.Deferred.Partition.Partition,
		)
	}
	return fields
}

// verbResult is the result of a verb.
type verbResult struct {
	dryRunView
	ID     string `json:"event_id"`
	Type   string `json:"type"`
	Store  string `json:"store"`
	Result string `json:"result"`
	Next   string `json:"next"`
}

func (a *app) showResult(e *events.Event, result, next string) error {
	r := verbResult{
		dryRunView: dryRunView{a.dryRun},
		ID:         e.Key.ID, Type: e.Key.Type, Store: e.Store.Name, Result: result, Next: next,
	}
	return a.show(
		r,
		nil,
		[][]string{
			{result + ":", fmt.Sprintf("event %s of type %s in %s", r.ID, r.Type, r.Store)},
			{"next:", next},
		},
	)
}
