package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

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
	ledger := &urlFlag{
		name: "store", env: "IDEM_STORE", split: splitStores,
		use: func(urls []string) { a.stores = urls },
	}
	f.Var(
		a.addURLFlag(ledger),
		ledger.name,
		"postgres://, redis://, rediss:// or redis+cluster:// `URL` of a store, or @FILE; several if events are in either (env IDEM_STORE)",
	)
	f.StringVar(
		&a.schema, "schema", os.Getenv("IDEM_SCHEMA"),
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
	f.StringVar(&a.tlsKey, "tls-key", "", "PEM `file` with its key")
	f.StringVar(&a.saslMechanism, "sasl-mechanism", "", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
	f.StringVar(
		&a.saslUser, "sasl-user", os.Getenv("IDEM_SASL_USER"),
		"user at Kafka (env IDEM_SASL_USER); the password is taken from env IDEM_SASL_PASSWORD",
	)
	f.BoolVar(
		&a.allowInsecure, "allow-insecure", false,
		"use SASL without TLS: PLAIN sends the password, SCRAM lets listeners guess it",
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

var urlBegins = regexp.MustCompile(`(?:^|,)\s*[a-z+]+://`)

// splitStores splits at commas between URLs, not at those between the hosts of one.
func splitStores(s string) (urls []string) {
	begins := urlBegins.FindAllStringIndex(s, -1)
	if s != "" && (len(begins) == 0 || begins[0][0] > 0) {
		begins = slices.Insert(begins, 0, []int{0, 0}) // no URL: its opener reports the error
	}
	for i, at := range begins {
		end := len(s)
		if i+1 < len(begins) {
			end = begins[i+1][0]
		}
		urls = append(urls, strings.Trim(s[at[0]:end], ", "))
	}
	return urls
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
	return "", usage("whose events? give --group, or --scope")
}

func (a *app) theGroup() (string, error) {
	if a.group == "" {
		return "", usage("which consumer group? give --group")
	}
	return a.group, nil
}

// outputs are the values of --output.
var outputs = []string{"table", "json"}

// show prints rows as a table, or value as JSON. Control characters in cells are escaped, because
// the text of a producer must not reach the terminal as a command (G-04).
func (a *app) show(value any, header []string, rows [][]string) error {
	switch a.output {
	case "json":
		enc := json.NewEncoder(a.stdout)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(value)
	case "table":
		w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
		if len(header) > 0 {
			fmt.Fprintln(w, strings.Join(header, "\t"))
		}
		for _, row := range rows {
			cells := make([]string, len(row))
			for i := range row {
				cells[i] = plain(row[i])
			}
			fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
		}
		return w.Flush()
	default:
		return usage("--output is table or json, not %q", a.output)
	}
}

// plain escapes control characters.
func plain(s string) string {
	s = strings.ToValidUTF8(
		s, "\uFFFD",
	) // a single byte is a control character to some terminals: 0x9b is what ESC [ is
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// errRefused means that the person answered no, or that no person could answer.
var errRefused = errors.New("not confirmed, nothing was done (--yes does not ask)")

// maxAnswer limits the length of an answer.
const maxAnswer = 1024

// confirm asks before an action that cannot be undone. Without a person to answer, --yes is
// required.
func (a *app) confirm(format string, args ...any) error {
	if a.yes {
		return nil
	}
	fmt.Fprintf(a.stderr, "%s\nGo on? [y/N] ", plainLines(a.redact(fmt.Sprintf(format, args...))))
	lines := make(chan string, 1)
	go func() { // ends with the answer, or with the process: nothing else ends a read of a terminal
		line, _ := bufio.NewReader(io.LimitReader(a.stdin, maxAnswer)).ReadString('\n')
		lines <- line
	}()
	var line string
	select {
	case line = <-lines:
		if !strings.HasSuffix(line, "\n") ||
			!isTerminal(a.stdin) { // without a return, the audit line needs a new line
			fmt.Fprintln(a.stderr)
		}
	case <-done(a.ctx):
		fmt.Fprintln(a.stderr)
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
		return nil
	}
	return &exitError{exitFound, errRefused}
}

// confirmed is confirm for a verb that writes its own audit line: here, a refusal.
func (a *app) confirmed(action string, fields map[string]any, format string, args ...any) error {
	err := a.confirm(format, args...)
	if err != nil {
		fields["outcome"], fields["error"] = "refused", err.Error()
		a.audit(action, fields)
	}
	return err
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func done(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}

// plainLines is plain for a text of several lines. A tab becomes a space.
func plainLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = plain(strings.ReplaceAll(lines[i], "\t", " "))
	}
	return strings.Join(lines, "\n")
}

// audit writes a line about an action that was done or refused: user, time, action and objects. The
// line is one JSON object on standard error, for every value of --output, and in the file of
// --audit-file. The default of the field "outcome" is "done".
func (a *app) audit(action string, fields map[string]any) {
	line := map[string]any{
		"time": time.Now().UTC().Format(time.RFC3339Nano), "audit": action, "outcome": "done",
		"user": cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"), "unknown"), "uid": os.Getuid(),
	}
	for k, v := range fields {
		line[k] = v
	}
	text, err := json.Marshal(line)
	if err != nil {
		text = fmt.Appendf(nil, `{"audit":%q,"error":%q}`, action, err)
	}
	entry := string(text) + "\n"
	fmt.Fprint(a.stderr, entry)
	if a.auditFile == nil {
		return
	}
	if _, err := a.auditFile.WriteString(entry); err != nil {
		a.auditFailed = true
		fmt.Fprintln(a.stderr, "idem: --audit-file:", err)
	}
}

// audited does an action and audits its outcome: done, refused or failed. fn may add fields.
func (a *app) audited(action string, fields map[string]any, fn func() error) error {
	err := fn()
	var exit *exitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && exit.code == exitUsage: // the arguments are wrong, and no action began
		return err
	case errors.As(err, &exit) && exit.code == exitFound:
		fields["outcome"] = "refused"
	default:
		fields["outcome"] = "failed"
	}
	if err != nil {
		fields["error"] = a.redact(err.Error())
	}
	a.audit(action, fields)
	return err
}

// redact removes passwords from the text of other programs (G-04).
func (a *app) redact(text string) string { return a.secrets.Text(text) }
