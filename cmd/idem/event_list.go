package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/events"
)

// statuses are the values of --status: states, and groups of states.
var statuses = map[string][]dedup.State{
	"claimed": {dedup.Claimed}, "released": {dedup.Released}, "waiting": {dedup.Waiting},
	"done": {dedup.Finished}, "dead": {dedup.GivenUp},
	"pending": {dedup.Claimed, dedup.Released, dedup.Waiting},
	"failed":  {dedup.GivenUp}, "stuck": {dedup.Claimed},
}

func statusNames() []string {
	return []string{"pending", "failed", "stuck", "claimed", "released", "waiting", "done", "dead"}
}

const (
	listDefault = 100
	listMost    = 100_000 // all are held in memory, for the columns of a table
)

func newEventListCmd(a *app) *cobra.Command {
	var f dedup.Filter
	var status []string
	var until string
	limit := listDefault
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List events by their state (not in Redis)",
		Long: "Lists events of a store in a SQL database by state, the least recently changed\n" +
			"first. \"pending\" events are claimed, released or waiting; \"failed\" events\n" +
			"are dead; \"stuck\" events have a claim whose lease is over. The command reads\n" +
			"the tables from end to end. Without --group and --scope, events of all scopes\n" +
			"are listed. An event can have two records, one for handlers with claims and one\n" +
			"for transactional ones: an event that was given up has both.",
		Example: "  idem event list --status pending --until 5m -G billing " +
			"--store postgres://idem@db/shop\n" +
			"  idem event list --status failed --limit 20 -o json",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Scope = cmp.Or(a.scope, a.group)
			if err := setStates(&f, status); err != nil {
				return err
			}
			if err := checkLimit(limit, 1, listMost); err != nil {
				return err
			}
			changed, err := parseTime("until", until)
			if err != nil {
				return err
			}
			if until != "" {
				f.Unchanged = time.Since(changed)
			}
			return a.eventList(cmd.Context(), f, limit)
		},
	}
	s := cmd.Flags()
	s.StringSliceVar(
		&status, "status", nil,
		strings.Join(statusNames(), ", ")+"; several with commas, all by default",
	)
	s.StringVar(&until, "until", "", "last changed before `time`: "+timeForms)
	oldName(s, "older", "until")
	s.StringVar(&f.Type, "type", "", "event type, all by default")
	s.IntVar(&limit, "limit", listDefault, "how many at most")
	complete(cmd, "status", statusNames()...)
	return cmd
}

func setStates(f *dedup.Filter, status []string) error {
	f.Stuck = len(status) == 1 && status[0] == "stuck"
	for _, name := range status {
		states, ok := statuses[name]
		switch {
		case !ok:
			return usage("--status has no %q: %s", name, strings.Join(statusNames(), ", "))
		case name == "stuck" && !f.Stuck:
			return usage("--status stuck goes with no other")
		}
		f.States = append(f.States, states...)
	}
	slices.Sort(f.States)
	f.States = slices.Compact(f.States)
	return nil
}

// listed is a line of event list.
type listed struct {
	events.View
	Age string `json:"unchanged_for,omitempty"`
}

func (a *app) eventList(ctx context.Context, f dedup.Filter, limit int) error {
	stores, err := a.openStores(ctx)
	if err != nil {
		return err
	}
	for _, l := range stores {
		if _, ok := l.store.(dedup.Lister); !ok {
			return usage(
				"%s cannot list events: only stores in SQL databases, such as Postgres, can. "+
					"Show one event with idem event get, or use idem dlq ls and idem lag",
				l.name,
			)
		}
	}
	all := []listed{}
	for _, l := range stores {
		at := l.shared()
		err := l.store.(dedup.Lister).List(ctx, f, limit-len(all)+1, func(r dedup.Record) bool {
			e := events.Event{Store: &at, Key: r.Key, Records: []dedup.Record{r}}
			row := listed{View: e.View(r)}
			if !r.Changed.IsZero() {
				row.Age = short(max(time.Since(r.Changed), 0))
			}
			all = append(all, row)
			return len(all) <= limit
		})
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		if len(all) > limit {
			break
		}
	}
	more := len(all) > limit
	if more {
		all = all[:limit]
	}
	if err := a.show(all, listHeader, listRows(all)); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(a.stderr, "idem: there are more than %d: --limit\n", limit)
	}
	return nil
}

var listHeader = []string{
	"STATE", "EVENT", "TYPE", "SCOPE", "HANDLER", "FAILED", "UNCHANGED", "ORIGIN", "REASON",
}

// shownReason is how many bytes of a reason fit into a table.
const shownReason = 80

func listRows(all []listed) (rows [][]string) {
	for _, l := range all {
		origin := ""
		if o := l.Origin; o != nil {
			origin = fmt.Sprintf("%s/%d/%d", o.Topic, o.Partition, o.Offset)
		}
		reason := oneLine(l.Reason)
		if len(reason) > shownReason {
			reason = strings.ToValidUTF8(reason[:shownReason], "") + "..."
		}
		id := l.ID
		if l.Tenant != "" {
			id += " (" + l.Tenant + ")"
		}
		rows = append(
			rows,
			[]string{
				stateText(&l.View), id, l.Type, l.Scope, handlerText(&l.View),
				strconv.Itoa(int(l.Failures)), l.Age, origin, reason,
			},
		)
	}
	return rows
}
