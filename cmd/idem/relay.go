package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// relayFlags are those of idem relay.
type relayFlags struct {
	topics      []string
	setupWait   time.Duration
	outbox      outboxFlag
	interval    time.Duration
	batch       int
	batchBytes  int
	lease       time.Duration
	maxAttempts int
	whenParked  string
	keep        time.Duration
	wake        bool
	health      string
}

func newRelayCmd(a *app) *cobra.Command {
	var f relayFlags
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Publish the rows of an outbox, until interrupted",
		Long: "Publishes the rows of an outbox until interrupted, as outbox.Relay does inside a\n" +
			"service. Several relays may run at once and share the rows. If the database\n" +
			"cannot be reached at the start, or Kafka for as long as --setup-wait, the command\n" +
			"ends with exit code 3; later the relay waits for them. Logs go to standard error,\n" +
			"as JSON with --output json.\n" +
			"\n" + telemetryHelp,
		Example: "  idem relay --brokers localhost:9092 --outbox postgres://relay@db/shop\n" +
			"  idem relay --brokers localhost:9092 --outbox @/run/secrets/outbox " +
			"--health :8080 -o json",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.relay(cmd, &f) },
	}
	f.flags(a, cmd.Flags())
	complete(cmd, "when-parked", outbox.Halt.String(), outbox.Skip.String())
	return cmd
}

func (f *relayFlags) flags(a *app, s *pflag.FlagSet) {
	f.outbox.flags(a, s)
	s.StringSliceVar(
		&f.topics, "topics", nil,
		"topics that must exist at the start; by default a row whose topic is missing is parked "+
			"later",
	)
	s.DurationVar(
		&f.setupWait, "setup-wait", defaultSetupWait,
		"how long to wait at the start for Kafka, and for missing tables, topics and rights",
	)
	s.DurationVar(
		&f.interval, "interval", outbox.DefaultInterval,
		"how long to wait when the outbox is empty",
	)
	s.IntVar(
		&f.batch, "batch", outbox.DefaultBatch, "rows that are published at once, at most 10000",
	)
	s.IntVar(
		&f.batchBytes, "batch-bytes", outbox.DefaultBatchBytes,
		"bytes that are published at once, and held in memory",
	)
	s.DurationVar(
		&f.lease, "lease", outbox.DefaultLease, "how long others wait for a relay that is gone",
	)
	s.IntVar(
		&f.maxAttempts, "max-attempts", outbox.DefaultMaxAttempts,
		"attempts for a row whose topic is missing or may not be written to",
	)
	s.StringVar(
		&f.whenParked, "when-parked", outbox.Halt.String(),
		"the events behind a parked row: halt or skip",
	)
	s.DurationVar(
		&f.keep, "keep", 0, "how long sent rows stay, for inspection",
	)
	s.BoolVar(
		&f.wake,
		"wake",
		false,
		"also listen for notifications of writers with pgoutbox.Notify",
	)
	s.StringVar(
		&f.health, "health", "", "serve /healthz and /readyz at this `address`, such as :8080",
	)
}

// defaultSetupWait is the default of outbox.RelayConfig.SetupWait.
const defaultSetupWait = 3 * time.Second

// maxRelayBatch is the limit of a relay. It is checked before a connection is opened.
const maxRelayBatch = 10_000

// config returns the configuration of the relay without the connections.
func (f *relayFlags) config() (c outbox.RelayConfig, err error) {
	if f.interval <= 0 || f.batch <= 0 || f.batchBytes <= 0 || f.maxAttempts <= 0 {
		return c, usage("--interval, --batch, --batch-bytes and --max-attempts must be positive")
	}
	if f.batch > maxRelayBatch {
		return c, usage("--batch is %d at most", maxRelayBatch)
	}
	if f.setupWait <= 0 {
		return c, usage("--setup-wait must be positive")
	}
	if f.lease < time.Second {
		return c, usage("--lease must be 1s at least")
	}
	if f.keep < 0 {
		return c, usage("--keep must not be negative")
	}
	c = outbox.RelayConfig{
		Topics: f.topics, SetupWait: f.setupWait, Interval: f.interval, Batch: f.batch,
		BatchBytes: f.batchBytes, Lease: f.lease, MaxAttempts: f.maxAttempts, Keep: f.keep,
		Wake: f.wake,
	}
	switch f.whenParked {
	case outbox.Halt.String():
		c.WhenParked = outbox.Halt
	case outbox.Skip.String():
		c.WhenParked = outbox.Skip
	default:
		return c, usage("--when-parked is halt or skip, not %q", f.whenParked)
	}
	return c, nil
}

// relayConns is the number of connections that a relay uses at once: to publish, to renew its
// shards, and to listen.
const relayConns = 4

// startWait bounds the first question to the database.
const startWait = 15 * time.Second

func (a *app) relay(cmd *cobra.Command, f *relayFlags) error {
	ctx := cmd.Context()
	cfg, err := f.config()
	if err != nil {
		return err
	}
	if f.health != "" {
		if err := checkAddress(ctx, "health", f.health); err != nil {
			return err
		}
	}
	if _, err := a.kafkaConfig(); err != nil {
		return err
	}
	access, err := a.kafkaAccess("idem-relay")
	if err != nil {
		return err
	}
	b, err := a.openOutbox(cmd, &f.outbox, poolUse{"idem-relay", relayConns})
	if err != nil {
		return err
	}
	cfg.Logger = a.logger()
	var setup *dedup.SetupError // Run waits for the missing tables
	missing := b.reachable(ctx, cfg.Logger)
	if missing != nil && !errors.As(missing, &setup) {
		return missing
	}
	start := &relayStart{app: a, outbox: b.name, why: errNoBroker}
	stop, err := serveHealth(ctx, f.health, a.ready(start.ready), cfg.Logger)
	if err != nil {
		return fmt.Errorf("--health: %w", err)
	}
	defer stop()
	producer, err := start.awaitProducer(ctx, access, f.setupWait, cfg.Logger)
	switch {
	case err != nil && ctx.Err() != nil: // interrupted while it waits
		return start.print("stopped", new(relayCounts), 0)
	case err != nil:
		return errors.Join(missing, err)
	}
	defer producer.Close()
	observer, end, err := observe(ctx, "idem-relay", cfg.Logger)
	if err != nil {
		return err
	}
	defer end()
	seen := new(relayCounts)
	cfg.Store, cfg.Producer = b.box, producer
	cfg.Observers = []outbox.Observer{seen, start, observer}
	relay, err := outbox.NewRelay(cfg)
	if err != nil {
		return usage("%v", err)
	}
	return start.run(ctx, relay, seen)
}

// reachable asks the database for the first time: tables that are not there are no outage.
func (b *openedOutbox) reachable(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	notes, err := b.box.Check(ctx)
	for _, note := range notes { // that this role can only relay is as it should be
		log.Info("outbox checked", "outbox", b.name, "note", note)
	}
	if err == nil {
		_, err = b.box.Backlog(ctx, 1)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	return nil
}

// relayCounts adds up the results of the relay.
type relayCounts struct{ rows, sent, failed, parked atomic.Int64 }

var _ outbox.RoundObserver = (*relayCounts)(nil)

// ObserveRound implements [outbox.RoundObserver].
func (c *relayCounts) ObserveRound(_ context.Context, r outbox.Round) {
	c.rows.Add(int64(r.Rows))
	c.sent.Add(int64(r.Sent))
	c.failed.Add(int64(r.Failed))
	c.parked.Add(int64(r.Parked))
}

// logger writes to standard error, and no password (G-04).
func (a *app) logger() *slog.Logger {
	opts := &slog.HandlerOptions{ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
		switch v := attr.Value.Any().(type) {
		case string:
			attr.Value = slog.StringValue(a.redact(v))
		case error:
			attr.Value = slog.StringValue(a.redact(v.Error()))
		}
		return attr
	}}
	if a.output == "json" {
		return slog.New(slog.NewJSONHandler(printableJSON{a.stderr}, opts))
	}
	return slog.New(slog.NewTextHandler(a.stderr, opts))
}
