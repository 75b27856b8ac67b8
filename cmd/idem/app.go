package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
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
	dryRun  bool

	auditPath     string
	now           func() time.Time // of progress; nil: time.Now
	kafkaWait     time.Duration    // of tests; zero: kafkaWait
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
	bare        bool            // a file without tables is a store, too: for idem migrate
	ctx         context.Context // of the command that runs
	begun       bool            // flags and arguments were found good
	wasGiven    func(flag string) bool
	auditFile   *os.File
	auditFailed bool
	onRecord    bool           // an audit line was written
	auditing    sync.Mutex     // guards auditFailed, onRecord and the writes to auditFile
	about       map[string]any // the object of the verb, for its audit line, once known
	pools       poolUse        // of stores in Postgres
	secrets     secrets        // never to be printed
	urlFlags    []*urlFlag
	closers     []func()
}

// begin checks the shared flags, before any work is done. audits reports whether the verb writes
// audit lines.
func (a *app) begin(ctx context.Context, audits bool) error {
	if !slices.Contains(outputs, a.output) {
		return usage("--output is table or json, not %q", a.output)
	}
	for _, f := range a.urlFlags {
		if err := f.resolve(); err != nil {
			return err
		}
	}
	a.begun, a.ctx = true, ctx
	if a.auditPath == "" || !audits { // the variable of the environment is for all verbs
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

// given reports whether the command line has a flag.
func (a *app) given(flag string) bool { return a.wasGiven != nil && a.wasGiven(flag) }

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
