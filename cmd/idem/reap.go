package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/jsontime"
)

// reapFlags are those of idem reap.
type reapFlags struct {
	deadLetters time.Duration
	wallClock   []string
	batch       int
	watch       bool
	interval    time.Duration
	health      string
}

const (
	deadLettersKept = 30 * 24 * time.Hour
	reapEvery       = time.Minute
)

func newReapCmd(a *app) *cobra.Command {
	var f reapFlags
	cmd := &cobra.Command{
		Use:   "reap",
		Short: "Delete expired rows from stores in SQL databases",
		Long: "Deletes expired rows from stores in SQL databases, in one run: start the command\n" +
			"periodically, or with --watch. A run announces rows, and a run at least a minute\n" +
			"later deletes them. A row is deleted when its whole scope has consumed beyond the\n" +
			"expiry, so a group that stands still keeps all rows. The command does the same as\n" +
			"a Reaper inside a service; one reaper works at a time.\n" +
			"\n" +
			"The command asks for confirmation only if --wall-clock or a shorter\n" +
			"--dead-letter-retention deletes rows that would stay otherwise.",
		Example: "  idem reap --store postgres://idem@db/shop\n" +
			"  idem reap --store postgres://idem@db/shop --wall-clock http --watch --yes",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.reap(cmd.Context(), &f) },
	}
	s := cmd.Flags()
	s.DurationVar(
		&f.deadLetters, "dead-letter-retention", deadLettersKept,
		"how long given-up events stay at least: as long as their dead letters",
	)
	s.StringSliceVar(
		&f.wallClock,
		"wall-clock",
		nil,
		"`scopes` whose rows are deleted by the wall clock: "+
			"without a Kafka consumer, or out of use",
	)
	s.IntVar(&f.batch, "batch", 1000, "rows that one transaction deletes, at most 10000")
	s.BoolVar(&f.watch, "watch", false, "go on until interrupted, one run each --interval")
	s.DurationVar(&f.interval, "interval", reapEvery, "pause between two runs of --watch")
	s.StringVar(
		&f.health, "health", "",
		"serve /healthz and /readyz of --watch at this `address`, such as :8080",
	)
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
		Store: l.name, Elsewhere: r.Elsewhere, Events: r.Events, Claims: r.Claims,
		Starts: r.Starts, Stuck: r.Stuck, Scopes: []scopeView{}, Silent: r.Silent,
	}
	for i := range r.Scopes {
		s := &r.Scopes[i]
		view := scopeView{
			Scope: s.Scope, ConsumedUntil: jsontime.Pointer(s.ConsumedUntil),
			Horizon: jsontime.Pointer(s.Horizon),
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
	if f.health != "" && !f.watch {
		return usage("--health needs --watch")
	}
	if f.health != "" {
		if err := checkAddress(ctx, "health", f.health); err != nil {
			return err
		}
	}
	if f.watch && len(a.stores) > 1 {
		return usage("--watch is for one --store")
	}
	// The checks of the start may take long, and the command answers probes meanwhile.
	health := newReapHealth(f.interval)
	stop, err := serveHealth(ctx, f.health, a.ready(health.ready), a.logger())
	if err != nil {
		return fmt.Errorf("--health: %w", err)
	}
	defer stop()
	stores, err := a.openTables(ctx, "")
	if err != nil {
		return err
	}
	refused := a.checkWallClock(ctx, stores, f)
	var all []reapView
	for _, l := range stores {
		fields := map[string]any{"store": l.name}
		if len(f.wallClock) > 0 {
			fields["wall_clock"] = f.wallClock
		}
		if f.deadLetters < deadLettersKept {
			fields["dead_letter_retention"] = f.deadLetters.String()
		}
		err := a.audited("reap", fields, func() error {
			if refused != nil {
				return refused
			}
			if err := a.confirmReap(l, f); err != nil {
				return err
			}
			if f.watch {
				return a.reapWatch(ctx, l, f, health, fields)
			}
			result, err := a.reapOnce(ctx, l, f)
			fields["events"], fields["claims"] = result.Events, result.Claims
			fields["starts"] = result.Starts
			if err != nil {
				return fmt.Errorf(
					"%s: after %d events and %d claims were deleted: %w", l.name, result.Events,
					result.Claims, err,
				)
			}
			all = append(all, viewOfReap(l, result))
			return nil
		})
		if err != nil && refused == nil { // a refusal is on record for each store
			return err
		}
	}
	if refused != nil {
		return refused
	}
	if f.watch {
		return nil
	}
	return a.show(all, nil, reapRows(all))
}

// reapOnce makes one run, and shows the progress.
func (a *app) reapOnce(
	ctx context.Context, l *openedStore, f *reapFlags,
) (pgstore.ReapResult, error) {
	seen := a.progress("rows deleted", 0)
	defer seen.end()
	cfg := f.config()
	cfg.Deleted = func(rows int64) { seen.add(rows, nil) }
	return l.reaper(cfg).RunOnce(ctx)
}

func (f *reapFlags) config() pgstore.ReaperConfig {
	return pgstore.ReaperConfig{
		Interval: f.interval, Batch: f.batch, DeadLetterRetention: f.deadLetters,
		// the results have the errors
		WallClock: f.wallClock, Logger: slog.New(slog.DiscardHandler),
	}
}

func (a *app) confirmReap(l *openedStore, f *reapFlags) error {
	question := f.question(l.name)
	if question == "" {
		return nil
	}
	return a.confirm("%s", question)
}

// question names each setting by which a run deletes rows that would stay otherwise. It is empty
// without such a setting.
func (f *reapFlags) question(store string) string {
	var lines []string
	if len(f.wallClock) > 0 {
		lines = append(lines, fmt.Sprintf(
			"In %s the expired rows of %q will be deleted by the wall clock. "+
				"If a Kafka consumer uses them, "+
				"waiting events of its topics will be handled again.",
			store, f.wallClock,
		))
	}
	if f.deadLetters < deadLettersKept {
		lines = append(lines, fmt.Sprintf(
			"In %s given-up events will be forgotten after %s. "+
				"A dead letter that is published again later is a new event.",
			store, short(f.deadLetters),
		))
	}
	return strings.Join(lines, "\n")
}

func reapRows(all []reapView) (rows [][]string) {
	for i := range all {
		v := &all[i]
		rows = append(rows, []string{"STORE", v.Store})
		if v.Elsewhere {
			rows = append(rows, []string{"no rows deleted", "another reaper is at work"})
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
					"scopes", "no scope records progress or uses the wall clock: all rows stay",
				},
			)
		}
		for _, s := range v.Scopes {
			text := "all rows stay: the consumed offset is not known"
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
					"all rows stay: the scope records no progress, " +
						"and --wall-clock does not name the scope",
				},
			)
		}
	}
	return rows
}

// reapWatch prints a line for each run, as JSON if --output asks for that, until an interruption.
func (a *app) reapWatch(
	ctx context.Context, l *openedStore, f *reapFlags, health *reapHealth, total map[string]any,
) error {
	cfg := f.config()
	var events, claims int64
	var seen *progress // of the present run
	cfg.Deleted = func(rows int64) {
		health.heard()
		if seen == nil {
			seen = a.progress("rows deleted", 0)
		}
		seen.add(rows, nil)
	}
	cfg.Observe = func(r pgstore.ReapResult, err error) {
		health.note(err)
		if seen != nil { // on a terminal the line of the result takes its place
			seen.end()
			seen = nil
		}
		events, claims = events+r.Events, claims+r.Claims
		v := viewOfReap(l, r)
		if err != nil {
			v.Error = a.redact(err.Error())
		}
		if a.output == "json" {
			line, _ := json.Marshal(v) // of strings and numbers
			fmt.Fprintln(a.stdout, string(printable(line)))
			return
		}
		text := fmt.Sprintf("%d events, %d claims, %d starts deleted", r.Events, r.Claims, r.Starts)
		switch {
		case err != nil:
			text = v.Error
		case r.Elsewhere:
			text = "another reaper is at work"
		}
		fmt.Fprintln(a.stdout, time.Now().UTC().Format(time.RFC3339), oneLine(text))
	}
	err := l.reaper(cfg).Run(ctx)
	total["events"], total["claims"] = events, claims
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
