package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/idem-go/idem/internal/redact"
)

// app has the flags, connections and output that all commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	brokers []string
	group   string
	scope   string
	stores  []string // URLs
	output  string
	yes     bool

	auditPath     string
	schema        string
	redisPrefix   string
	tls           bool
	tlsCA         string
	tlsCert       string
	tlsKey        string
	saslMechanism string
	saslUser      string
	oauth         oauthFlags
	allowInsecure bool

	known       map[string]*openedStore // stores by URL that need not be opened: those of tests
	opened      []*openedStore
	ctx         context.Context // of the command that runs
	begun       bool            // flags and arguments were found good
	auditFile   *os.File
	auditFailed bool
	secrets     redact.Secrets // never to be printed
	urlFlags    []*urlFlag
	closers     []func()
}

func (a *app) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&a.brokers, "brokers", nil, "Kafka brokers, host:port (env IDEM_BROKERS)")
	f.StringVarP(&a.group, "group", "G", os.Getenv("IDEM_GROUP"), "consumer group (env IDEM_GROUP)")
	f.StringVar(
		&a.scope, "scope", os.Getenv("IDEM_SCOPE"),
		"scope of the store, the group by default (env IDEM_SCOPE)",
	)
	storeFlag := &urlFlag{
		name: "store", env: "IDEM_STORE", split: splitStores,
		use: func(urls []string) { a.stores = urls },
	}
	f.Var(
		a.addURLFlag(storeFlag),
		storeFlag.name,
		"postgres://, redis://, rediss:// or redis+cluster:// `URL` of a store, or @FILE; several if events are in either (env IDEM_STORE)",
	)
	f.StringVar(
		&a.schema,
		"schema",
		os.Getenv("IDEM_SCHEMA"),
		"schema of the tables in Postgres, found through the search path by default (env IDEM_SCHEMA)",
	)
	f.StringVar(
		&a.redisPrefix, "redis-prefix", os.Getenv("IDEM_REDIS_PREFIX"),
		"prefix of the keys in Redis, \"idem:\" by default (env IDEM_REDIS_PREFIX)",
	)
	f.StringVarP(&a.output, "output", "o", "table", "table or json")
	f.BoolVarP(&a.yes, "yes", "y", false, "do not ask")
	f.StringVar(
		&a.auditPath, "audit-file", os.Getenv("IDEM_AUDIT_FILE"),
		"append the audit lines to this `file` too (env IDEM_AUDIT_FILE)",
	)
	f.BoolVar(&a.tls, "tls", false, "TLS to Kafka")
	f.StringVar(
		&a.tlsCA, "tls-ca", "",
		"PEM `file` with the CAs of the brokers, those of the system by default; implies --tls",
	)
	f.StringVar(
		&a.tlsCert, "tls-cert", "", "PEM `file` with the client's certificate; implies --tls",
	)
	f.StringVar(&a.tlsKey, "tls-key", "", "PEM `file` with the key of --tls-cert")
	f.StringVar(
		&a.saslMechanism, "sasl-mechanism", "",
		"PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
	)
	f.StringVar(
		&a.saslUser, "sasl-user", os.Getenv("IDEM_SASL_USER"),
		"user at Kafka (env IDEM_SASL_USER); the password is taken from env IDEM_SASL_PASSWORD",
	)
	a.oauth.flags(f)
	f.BoolVar(
		&a.allowInsecure, "allow-insecure", false,
		"use SASL without TLS: PLAIN sends the password, OAUTHBEARER the token, SCRAM lets listeners guess the password",
	)
	f.VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Name != "output" {
			f.DefValue = "" // --help must not show the environment (G-04)
		}
	})
	a.brokers, a.stores = envList("IDEM_BROKERS"), splitStores(os.Getenv("IDEM_STORE"))
}

func envList(name string) []string {
	return strings.FieldsFunc(os.Getenv(name), func(r rune) bool { return r == ',' })
}

// begin checks the shared flags, before any work is done.
func (a *app) begin(ctx context.Context) error {
	if !slices.Contains(outputs, a.output) {
		return usage("--output is table or json, not %q", a.output)
	}
	for _, f := range a.urlFlags {
		if err := f.resolve(); err != nil {
			return err
		}
	}
	a.begun, a.ctx = true, ctx
	if a.auditPath == "" {
		return nil
	}
	f, err := os.OpenFile(a.auditPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil { // an action without an audit record must not happen
		return fmt.Errorf("--audit-file: %w", err)
	}
	a.auditFile = f
	a.closers = append(
		a.closers, func() { _ = f.Close() },
	) // each line was written, or the error reported
	return nil
}

// close closes the connections, the last first.
func (a *app) close() {
	for i := len(a.closers) - 1; i >= 0; i-- {
		a.closers[i]()
	}
	a.closers = nil
}

// theScope returns the scope of the events.
func (a *app) theScope() (string, error) {
	if s := cmp.Or(a.scope, a.group); s != "" {
		return s, nil
	}
	return "", usage("no scope of events: give --group, or --scope")
}

func (a *app) theGroup() (string, error) {
	if a.group == "" {
		return "", usage("no consumer group: give --group")
	}
	return a.group, nil
}

// redact removes passwords from the text of other programs (G-04).
func (a *app) redact(text string) string { return a.secrets.Text(text) }

// addURLFlag registers the flag, so that begin checks the value.
func (a *app) addURLFlag(f *urlFlag) *urlFlag {
	a.urlFlags = append(a.urlFlags, f)
	return f
}

// outputs are the values of --output.
var outputs = []string{"table", "json"}
