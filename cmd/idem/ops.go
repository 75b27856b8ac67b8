package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idem-go/idem/cmd/idem/internal/signin"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/ops"
)

// opsFlags are those of idem ops.
type opsFlags struct {
	listen     string
	listenCert string
	listenKey  string
	health     string
	prefix     string
	title      string
	origins    []string
	payloads   string
	outbox     outboxFlag
	doctor     doctorOptions
	signin     signinFlags
}

// The values of --payloads.
const (
	payloadsAll       = "all"
	payloadsOperators = "operators"
	payloadsNone      = "none"
)

func newOpsCmd(a *app) *cobra.Command {
	var f opsFlags
	cmd := &cobra.Command{
		Use:   "ops",
		Short: "Serve the ops page, until interrupted",
		Long: "Serves the ops page until interrupted: events, dead letters, lag, outbox and\n" +
			"doctor of one group. Persons look only, unless --operators or --operator-groups\n" +
			"name them. Operators replay dead letters, as idem dlq replay does.\n" +
			"\n" +
			"Without authentication the page is for this machine only, and every person is\n" +
			"the user \"loopback\". Another address of --listen needs --oidc-issuer,\n" +
			"--basic-auth-file, or --auth-header for a proxy that signs persons in. The page\n" +
			"speaks HTTP, or HTTPS with --listen-tls-cert and --listen-tls-key. Their files\n" +
			"are read again at each handshake, so a renewed certificate counts at once.\n" +
			"--tls-cert and --tls-key are those of a client of Kafka.\n" +
			"\n" +
			"If a store cannot be reached at the start, the command ends with exit code 3;\n" +
			"later the page shows the failure. Logs go to standard error, as JSON with\n" +
			"--output json.\n" +
			"\n" + telemetryHelp,
		Example: "" +
			"  idem ops -G billing --brokers localhost:9092 --store postgres://idem@db/shop\n" +
			"  idem ops -G billing --listen :8080 --basic-auth-file /run/secrets/htpasswd " +
			"--operators ada\n" +
			"  idem ops -G billing --listen :8080 --auth-header X-Forwarded-User " +
			"--trusted-proxies 10.0.0.0/24\n" +
			"  idem ops -G billing --listen :8080 --oidc-issuer https://id.example.com " +
			"--oidc-client-id ops --oidc-client-secret-file /run/secrets/oidc --public-url " +
			"https://ops.example.com/ --viewer-groups dev --operator-groups sre",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ops(cmd, &f) },
	}
	f.flags(a, cmd.Flags())
	complete(cmd, "payloads", payloadsAll, payloadsOperators, payloadsNone)
	return cmd
}

func (f *opsFlags) flags(a *app, s *pflag.FlagSet) {
	s.StringVar(&f.listen, "listen", "127.0.0.1:8080", "serve the page at this `address`")
	s.StringVar(
		&f.listenCert, "listen-tls-cert", "",
		"PEM `file` with the certificate of --listen and its intermediates, to serve HTTPS",
	)
	s.StringVar(&f.listenKey, "listen-tls-key", "", "PEM `file` with the key of --listen-tls-cert")
	s.StringVar(
		&f.health, "health", "", "serve /healthz and /readyz at this `address`, such as :8081",
	)
	s.StringVar(
		&f.prefix, "prefix", "/",
		"`path` of the page, which begins and ends with a slash, for a proxy that passes the "+
			"path on",
	)
	s.StringVar(&f.title, "title", "", "shown beside the group, such as production")
	s.StringSliceVar(
		&f.origins, "trusted-origins", nil,
		"further origins of the page's forms, such as https://ops.example.com, behind a proxy "+
			"that changes Host",
	)
	s.StringVar(
		&f.payloads, "payloads", payloadsAll,
		"persons who see the values of dead letters: all, operators or none",
	)
	f.outbox.flags(a, s)
	s.Lookup("outbox").Usage = "postgres:// `URL` of the database with the outbox, or @FILE (env " +
		"IDEM_OUTBOX)"
	f.doctor.workerFlags(s)
	f.signin.flags(s)
}

// config returns the part of the page's configuration that needs no connection.
func (f *opsFlags) config(ctx context.Context) (c ops.Config, err error) {
	if !slices.Contains([]string{payloadsAll, payloadsOperators, payloadsNone}, f.payloads) {
		return c, usage("--payloads is all, operators or none, not %q", f.payloads)
	}
	if err := f.doctor.validate(); err != nil {
		return c, err
	}
	if err := checkAddress(ctx, "listen", f.listen); err != nil {
		return c, err
	}
	if f.health != "" {
		if err := checkAddress(ctx, "health", f.health); err != nil {
			return c, err
		}
	}
	if f.health != "" && f.health == f.listen {
		return c, usage("--health and --listen are the same address")
	}
	return ops.Config{
		Prefix: f.prefix, Title: f.title, TrustedOrigins: f.origins,
		HidePayloads: f.payloads == payloadsNone,
	}, nil
}

// authorize decides about an action by the rules of the flags.
func (f *opsFlags) authorize(rules signin.Rules) func(*http.Request, string, ops.Action) error {
	return func(r *http.Request, who string, action ops.Action) error {
		limited := action.Kind == ops.ActionReplay ||
			action.Kind == ops.ActionPayload && f.payloads == payloadsOperators
		if limited && !rules.MayOperate(signin.PersonOf(r, who)) {
			return errors.New("not an operator: --operators and --operator-groups name them")
		}
		return nil
	}
}

// ops serves the page.
func (a *app) ops(cmd *cobra.Command, f *opsFlags) error {
	ctx := cmd.Context()
	cfg, err := f.config(ctx)
	if err != nil {
		return err
	}
	cfg.Logger = a.logger()
	guard, err := f.signin.guard(ctx, a, f.prefix, cfg.Logger)
	if err != nil {
		return err
	}
	if guard.Method == nil && !isLoopbackAddress(f.listen) {
		return usage(
			"--listen %s is not a loopback address, and persons need not sign in: set "+
				"--oidc-issuer, --basic-auth-file, or --auth-header with --trusted-proxies",
			f.listen,
		)
	}
	serverTLS, err := f.listenTLS(cfg.Logger)
	if err != nil {
		return err
	}
	cfg.Loopback = guard.Method == nil
	cfg.AllowReplay = guard.Rules.AnyOperator()
	cfg.Authorize = f.authorize(guard.Rules)
	if guard.Method != nil {
		cfg.Auth = guard.Auth
		cfg.Denied = guard.Method.Deny
	}
	issuer, usesOIDC := guard.Method.(*signin.OIDC)
	if usesOIDC {
		cfg.SignOut = signin.SignOut
		cfg.TrustedOrigins = append(cfg.TrustedOrigins, signin.Origin(f.signin.oidc.publicURL))
	}
	if a.auditFile != nil {
		cfg.Audit = a.opsAudit()
	}
	if err := a.opsSources(cmd, f, &cfg); err != nil {
		return err
	}
	_, end, err := observe(ctx, "idem-ops", cfg.Logger)
	if err != nil {
		return err
	}
	defer end()
	page, err := ops.NewHandler(cfg)
	if err != nil {
		return usage("%w", err)
	}
	handler := http.Handler(page)
	if guard.Method != nil {
		handler = guard.Find(page)
	}
	if usesOIDC {
		handler = issuer.Serve(handler)
	}
	if handler, err = measured(handler, f.prefix); err != nil {
		return err
	}
	server := &opsServer{
		app: a, page: page, handler: handler, tls: serverTLS, log: cfg.Logger,
		loopback: cfg.Loopback,
	}
	return server.run(ctx, f)
}

// isLoopbackAddress reports whether only programs on this machine can reach an address to listen
// at. Names other than localhost may have any address.
func isLoopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	at, err := netip.ParseAddr(host)
	return err == nil && at.Unmap().IsLoopback()
}

// opsSources opens the stores, the outbox and the access to Kafka.
func (a *app) opsSources(cmd *cobra.Command, f *opsFlags, cfg *ops.Config) error {
	ctx := cmd.Context()
	a.pools = poolUse{"idem-ops", 4}
	named, err := a.opsStores(ctx)
	if err != nil {
		return err
	}
	cfg.StoreName = func(s dedup.Store) string { return named[s] }
	for _, l := range a.opened {
		cfg.Stores = append(cfg.Stores, l.store)
	}
	c := &cfg.Consumer
	if len(a.brokers) > 0 {
		if _, err := a.theGroup(); err != nil {
			return err
		}
		if _, err := a.kafkaConfig(); err != nil { // flags that contradict each other
			return err
		}
		if *c, err = a.kafkaAccess("idem-ops"); err != nil {
			return err
		}
	}
	c.Group, c.Scope, c.Topics = a.group, a.scope, f.doctor.Topics
	c.DeadLetterTopic = f.doctor.deadLetterTopic(a.group)
	if f.outbox.given(cmd) {
		box, err := a.openOutbox(cmd, &f.outbox, a.pools)
		if err != nil {
			return err
		}
		if err := box.reachable(ctx, cfg.Logger); err != nil {
			return err
		}
		cfg.Outbox = box.box
	}
	if len(cfg.Stores) == 0 && len(a.brokers) == 0 && cfg.Outbox == nil {
		return usage("the page would be empty: give --store, --brokers or --outbox")
	}
	cfg.Doctor = a.opsDoctor(f, *c)
	return nil
}

// opsStores opens the stores, and returns their names. A store that does not answer is an error.
func (a *app) opsStores(ctx context.Context) (map[dedup.Store]string, error) {
	if len(a.stores) == 0 {
		return nil, nil //nolint:nilnil // a page without a store
	}
	if _, err := a.theScope(); err != nil {
		return nil, err
	}
	stores, err := a.openStores(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	names := make(map[dedup.Store]string, len(stores))
	for _, l := range stores {
		if err := l.reachable(ctx, a.schema); err != nil {
			return nil, err
		}
		names[l.store] = l.name
	}
	return names, nil
}

// reachable asks the store for the first time.
func (l *openedStore) reachable(ctx context.Context, schema string) error {
	switch {
	case l.redis != nil:
		if err := l.redis.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	case l.hasTables():
		t := l.lookForTables(ctx, schema)
		if t.err != nil {
			return fmt.Errorf("%s: %w", l.name, t.err)
		}
		if t.layout == "" {
			return found("%s: the tables are missing: the consumer makes them, or idem migrate up",
				l.name)
		}
	}
	return nil
}

// opsAudit returns the function that writes the page's audit lines into the file of --audit-file.
// The log on standard error has a line of its own for each.
func (a *app) opsAudit() func(context.Context, ops.AuditEvent) {
	return func(_ context.Context, e ops.AuditEvent) {
		topic, record := topicAndRecord(e.DeadLetter)
		fields := map[string]any{"user": e.Who, "outcome": e.Outcome}
		for name, value := range map[string]string{
			"plan": e.Plan, "group": e.Group, "topic": topic, "record": record,
			"type": e.EventType, "event_id": e.EventID, "note": e.Note, "path": e.Path,
		} {
			if value != "" {
				fields[name] = value
			}
		}
		a.appendAudit(auditEntry("ops "+e.Action, fields))
	}
}

// opsStop bounds each step of the end: the requests under way, and the page.
const opsStop = 10 * time.Second
