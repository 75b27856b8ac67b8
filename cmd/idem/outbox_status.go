package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/internal/outboxview"
)

// outboxView is the output of outbox status.
type outboxView struct {
	Outbox string `json:"outbox"`
	outboxview.Status
}

func newOutboxStatusCmd(a *app) *cobra.Command {
	var o outboxFlag
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how much waits, for how long, and which relay publishes which shards",
		Example: "  idem outbox status --outbox postgres://idem@db/shop\n" +
			"  idem outbox status -o json",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.outboxStatus(cmd, &o) },
	}
	o.flags(a, cmd.Flags())
	return cmd
}

func (a *app) outboxStatus(cmd *cobra.Command, o *outboxFlag) error {
	b, err := a.openOutbox(cmd, o, poolUse{"idem-cli", 2})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askWait)
	defer cancel()
	status, err := outboxview.Ask(ctx, b.pool, b.schema)
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	v := outboxView{b.name, status}
	return a.show(v, nil, v.rows())
}

func (v *outboxView) rows() [][]string {
	oldest := "-"
	if v.Waiting > 0 {
		oldest = short(seconds(v.Oldest))
	}
	rows := [][]string{
		{"OUTBOX", v.Outbox}, {"waiting", outboxview.Counted(v.Waiting)}, {"oldest", oldest},
		{
			"parked", outboxview.Counted(v.Parked),
		}, {"blocked", outboxview.Counted(v.Blocked)}, {""}, {"RELAY", "SHARDS", "EPOCHS", "LEASE"},
	}
	for i := range v.Relays {
		r := &v.Relays[i]
		name := r.Relay
		if name == "" {
			name = "(no relay)"
		}
		rows = append(
			rows,
			[]string{
				name, outboxview.Spans(r.Shards), outboxview.Epochs(r.Epochs),
				leaseText(r.LeaseLeft),
			},
		)
	}
	return rows
}

// leaseText describes the rest of a lease in seconds, or the time since the end.
func leaseText(left *float64) string {
	switch {
	case left == nil:
		return "-"
	case *left < 0:
		return "over for " + short(seconds(-*left))
	}
	return short(seconds(*left)) + " left"
}
