package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup/pgstore"
)

// reapFlags are those of idem reap.
type reapFlags struct {
	deadLetters time.Duration
	wallClock   []string
	batch       int
	watch       bool
	interval    time.Duration
}

const (
	deadLettersKept = 30 * 24 * time.Hour
	reapEvery       = time.Minute
)

func newReapCmd(a *app) *cobra.Command {
	var f reapFlags
	cmd := &cobra.Command{
		Use:   "reap",
		Short: "Delete what has expired from stores in Postgres",
		Long: "Delete what has expired from stores in Postgres: one run, for a job that is started again and again. What a run\n" +
			"announces, one that comes a minute later or after that deletes. A row goes when its whole scope has consumed beyond its\n" +
			"expiry, so a group that stands still forgets nothing. It does what pgstore.Reaper does inside a service, and one\n" +
			"at a time works. It asks only if --wall-clock or a shorter --dead-letter-retention lets go of what would stay otherwise.",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.reap(cmd.Context(), &f) },
	}
	s := cmd.Flags()
	s.DurationVar(
		&f.deadLetters, "dead-letter-retention", deadLettersKept,
		"how long what was ever given up stays at least: as long as its dead letters",
	)
	s.StringSliceVar(
		&f.wallClock, "wall-clock", nil,
		"`scopes` whose rows go by the wall clock: of no Kafka consumer, or used by nobody any longer",
	)
	s.IntVar(&f.batch, "batch", 1000, "rows that one transaction deletes, at most 10000")
	s.BoolVar(&f.watch, "watch", false, "go on until interrupted, one run each --interval")
	s.DurationVar(&f.interval, "interval", reapEvery, "pause between two runs of --watch")
	return cmd
}

// reapView is the result of a run.
type reapView struct {
	Store     string      `json:"store"`
	Elsewhere bool        `json:"elsewhere,omitempty"`
	Events    int64       `json:"events"`
	Claims    int64       `json:"claims"`
	Starts    int64       `json:"starts"`
	Stuck     int64       `json:"stuck"` // -1: not known
	Scopes    []scopeView `json:"scopes"`
	Silent    []string    `json:"silent,omitempty"` // scopes without deletions
	Error     string      `json:"error,omitempty"`
}

type scopeView struct {
	Scope         string     `json:"scope"`
	ConsumedUntil *time.Time `json:"consumed_until,omitempty"`
	HeldUpBy      string     `json:"held_up_by,omitempty"`
	Horizon       *time.Time `json:"horizon,omitempty"`
}

func viewOfReap(l *openedStore, r pgstore.ReapResult) reapView {
	v := reapView{
		Store: l.name, Elsewhere: r.Elsewhere, Events: r.Events, Claims: r.Claims, Starts: r.Starts, Stuck: r.Stuck, Scopes: []scopeView{},
		Silent: r.Silent,
	}
	for i := range r.Scopes {
		s := &r.Scopes[i]
		view := scopeView{
			Scope: s.Scope, ConsumedUntil: moment(s.ConsumedUntil), Horizon: moment(s.Horizon),
		}
		if s.Topic != "" {
			view.HeldUpBy = fmt.Sprintf("%s/%d", s.Topic, s.Partition)
		}
		v.Scopes = append(v.Scopes, view)
	}
	return v
}

func (a *app) reap(ctx context.Context, f *reapFlags) error {
	if f.batch < 1 || f.batch > 10_000 || f.deadLetters <= 0 || f.interval <= 0 {
		return usage(
			"--batch must be between 1 and 10000, --dead-letter-retention and --interval positive",
		)
	}
	ledgers, err := a.openTables(ctx, "")
	if err != nil {
		return err
	}
	if f.watch && len(ledgers) > 1 {
		return usage("--watch is for one --store")
	}
	var all []reapView
	for _, l := range ledgers {
		fields := map[string]any{"store": l.name}
		if len(f.wallClock) > 0 {
			fields["wall_clock"] = f.wallClock
		}
		err := a.audited("reap", fields, func() error {
			if err := a.confirmReap(l, f); err != nil {
				return err
			}
			if f.watch {
				return a.reapWatch(ctx, l, f, fields)
			}
			result, err := pgstore.NewReaper(l.pg, f.config()).RunOnce(ctx)
			fields["events"], fields["claims"], fields["starts"] = result.Events, result.Claims, result.Starts
			if err != nil {
				return fmt.Errorf(
					"%s: after %d events and %d claims were deleted: %w", l.name, result.Events,
					result.Claims, err,
				)
			}
			all = append(all, viewOfReap(l, result))
			return nil
		})
		if err != nil {
			return err
		}
	}
	if f.watch {
		return nil
	}
	return a.show(all, nil, reapRows(all))
}

func (f *reapFlags) config() pgstore.ReaperConfig {
	return pgstore.ReaperConfig{
		Interval: f.interval, Batch: f.batch, DeadLetterRetention: f.deadLetters, WallClock: f.wallClock,
		Logger: slog.New(slog.DiscardHandler), // the results have the errors
	}
}

func (a *app) confirmReap(l *openedStore, f *reapFlags) error {
	switch {
	case len(f.wallClock) > 0:
		return a.confirm(
			"In %s the expired rows of %q will go by the wall clock. If a Kafka consumer uses them, what waits in its topics "+
				"will be handled again.",
			l.name,
			f.wallClock,
		)
	case f.deadLetters < deadLettersKept:
		return a.confirm(
			"In %s it will be forgotten after %s that an event was given up. A dead letter of it that is published again later is a new event.",
			l.name, short(f.deadLetters),
		)
	}
	return nil
}

func reapRows(all []reapView) (rows [][]string) {
	for i := range all {
		v := &all[i]
		rows = append(rows, []string{"STORE", v.Store})
		if v.Elsewhere {
			rows = append(rows, []string{"nothing done", "another reaper is at work"})
			continue
		}
		stuck := strconv.FormatInt(v.Stuck, 10)
		if v.Stuck < 0 {
			stuck = "not known"
		}
		rows = append(
			rows,
			[]string{
				"deleted",
				fmt.Sprintf("%d events, %d claims, %d starts", v.Events, v.Claims, v.Starts),
			},
			[]string{"stuck claims", stuck},
		)
		if len(v.Scopes) == 0 {
			rows = append(
				rows,
				[]string{
					"scopes", "none records progress or goes by the wall clock: everything stays",
				},
			)
		}
		for _, s := range v.Scopes {
			text := "nothing may go: how far it has consumed is not known"
			if s.ConsumedUntil != nil {
				text = "consumed until " + stampOf(s.ConsumedUntil)
			}
			if s.HeldUpBy != "" {
				text += ", the last is " + s.HeldUpBy
			}
			text += at("; remembers everything since ", s.Horizon)
			rows = append(rows, []string{"scope " + s.Scope, text})
		}
		for _, scope := range v.Silent {
			rows = append(
				rows,
				[]string{
					"scope " + scope,
					"everything stays: it records no progress, and is not named by --wall-clock",
				},
			)
		}
	}
	return rows
}

// reapWatch prints a line for each run, as JSON if --output asks for that, until an interruption.
func (a *app) reapWatch(
	ctx context.Context, l *openedStore, f *reapFlags, total map[string]any,
) error {
	cfg := f.config()
	var events, claims int64
	cfg.Observe = func(r pgstore.ReapResult, err error) {
		events, claims = events+r.Events, claims+r.Claims
		v := viewOfReap(l, r)
		if err != nil {
			v.Error = a.redact(err.Error())
		}
		if a.output == "json" {
			text, _ := json.Marshal(v) // of strings and numbers
			fmt.Fprintln(a.stdout, string(text))
			return
		}
		what := fmt.Sprintf("%d events, %d claims, %d starts deleted", r.Events, r.Claims, r.Starts)
		switch {
		case err != nil:
			what = v.Error
		case r.Elsewhere:
			what = "another reaper is at work"
		}
		fmt.Fprintln(a.stdout, time.Now().UTC().Format(time.RFC3339), plain(what))
	}
	err := pgstore.NewReaper(l.pg, cfg).Run(ctx)
	total["events"], total["claims"] = events, claims
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
