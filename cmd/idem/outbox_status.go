package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// outboxView is what status says.
type outboxView struct {
	Outbox  string       `json:"outbox"`
	Waiting int64        `json:"waiting"`        // counting stops at 100000
	Oldest  float64      `json:"oldest_seconds"` // of those that wait
	Parked  int64        `json:"parked"`
	Blocked int64        `json:"blocked"`
	Relays  []relayShare `json:"relays"`
}

func newOutboxStatusCmd(a *app) *cobra.Command {
	var o outboxFlag
	cmd := &cobra.Command{
		Use:   "status",
		Short: "How much waits, for how long, and which relay publishes which shards",
		Args:  none,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.outboxStatus(cmd, &o) },
	}
	o.flags(cmd.Flags())
	return cmd
}

func (a *app) outboxStatus(cmd *cobra.Command, o *outboxFlag) error {
	b, err := a.openOutbox(cmd, o, poolUse{"idem-cli", 2})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askWait)
	defer cancel()
	log, err := b.box.Backlog(ctx, backlogLimit)
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	relays, err := shares(ctx, b.pool, b.schema)
	if err != nil {
		return fmt.Errorf("%s: who publishes: %w", b.name, err)
	}
	v := outboxView{
		Outbox: b.name, Waiting: log.Waiting, Oldest: log.Oldest.Seconds(), Parked: log.Parked, Blocked: log.Blocked, Relays: relays,
	}
	return a.show(v, nil, v.rows())
}

func (v *outboxView) rows() [][]string {
	oldest := "-"
	if v.Waiting > 0 {
		oldest = short(seconds(v.Oldest))
	}
	rows := [][]string{
		{"OUTBOX", v.Outbox}, {"waiting", counted(v.Waiting)}, {"oldest", oldest},
		{"parked", counted(v.Parked)}, {"blocked", counted(v.Blocked)}, {""}, {"RELAY", "SHARDS", "EPOCHS", "LEASE"},
	}
	for i := range v.Relays {
		r := &v.Relays[i]
		name := r.Relay
		if name == "" {
			name = "(nobody)"
		}
		rows = append(rows, []string{name, spans(r.Shards), epochs(r.Epochs), r.lease()})
	}
	return rows
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (r *relayShare) lease() string {
	switch {
	case r.LeaseLeft == nil:
		return "-"
	case *r.LeaseLeft < 0:
		return "over for " + short(seconds(-*r.LeaseLeft))
	}
	return short(seconds(*r.LeaseLeft)) + " left"
}

// spans writes ascending numbers as people do: 0-31,40.
func spans(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(numbers[i]))
		if last > i {
			fmt.Fprintf(&b, "-%d", numbers[last])
		}
		i = last + 1
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()
}

func epochs(all []int64) string {
	if len(all) == 0 {
		return "-"
	}
	least, most := slices.Min(all), slices.Max(all)
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d-%d", least, most)
}
