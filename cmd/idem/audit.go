package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/deadletters"
)

// errRefused means that the person answered no, or that no person could answer.
var errRefused = errors.New("not confirmed, nothing was done (--yes does not ask)")

// maxAnswer limits the length of an answer.
const maxAnswer = 1024

// confirm asks before an action that cannot be undone. Without a person to answer, --yes is
// required. The error of a dry run is errDryRun: the caller skips the action and shows its result.
func (a *app) confirm(format string, args ...any) error {
	if a.dryRun {
		return a.showDryRun(fmt.Sprintf(format, args...))
	}
	if a.yes {
		return nil
	}
	fmt.Fprintf(a.stderr, "%s\nGo on? [y/N] ", plainLines(a.redact(fmt.Sprintf(format, args...))))
	lines := make(chan string, 1)
	go func() { // ends with the answer or the process: a read of a terminal cannot be ended
		lines <- readAnswer(a.stdin)
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

// readAnswer reads to the end of a line, byte by byte: a second question has its own answer.
func readAnswer(r io.Reader) string {
	var line []byte
	for one := make([]byte, 1); len(line) < maxAnswer; {
		n, err := r.Read(one)
		line = append(line, one[:n]...)
		if err != nil || n > 0 && one[0] == '\n' {
			break
		}
	}
	return string(line)
}

// confirmed is confirm for a verb that writes its own audit line: here, a refusal.
func (a *app) confirmed(action string, fields map[string]any, format string, args ...any) error {
	err := a.confirm(format, args...)
	if unlessDryRun(err) != nil {
		fields["outcome"], fields["error"] = "refused", err.Error()
		a.audit(action, fields)
	}
	return err
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && isCharDevice(f)
}

func writesToTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isCharDevice(f)
}

func isCharDevice(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func done(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}

// audit writes a line about an action that was done or refused: user, time, action and objects. The
// line is one JSON object on standard error, for every value of --output, and in the file of
// --audit-file. The default of the field "outcome" is "done". A dry run writes no line.
func (a *app) audit(action string, fields map[string]any) {
	if a.dryRun {
		return
	}
	entry := auditEntry(action, fields)
	fmt.Fprint(a.stderr, entry)
	a.appendAudit(entry)
}

// auditEntry returns an audit line. The fields win over the user of this process.
func auditEntry(action string, fields map[string]any) string {
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
	return string(printable(text)) + "\n"
}

// topicAndRecord splits a place, <topic>/<partition>/<offset>, into the fields of an audit line.
func topicAndRecord(place string) (topic, record string) {
	topic, record, _ = strings.Cut(place, "/")
	return topic, record
}

// appendAudit writes an entry into the file of --audit-file, if there is one.
func (a *app) appendAudit(entry string) {
	a.auditing.Lock()
	defer a.auditing.Unlock()
	a.onRecord = true
	if a.auditFile == nil {
		return
	}
	if _, err := a.auditFile.WriteString(entry); err != nil {
		a.auditFailed = true
		fmt.Fprintln(a.stderr, "idem: --audit-file:", err)
	}
}

// audited does an action and audits its outcome: done, refused, interrupted or failed. fn may add
// fields.
func (a *app) audited(action string, fields map[string]any, fn func() error) error {
	err := fn()
	a.auditOutcome(action, fields, err)
	return err
}

// auditOutcome audits an action that ended with err. If the arguments are wrong, no action began.
func (a *app) auditOutcome(action string, fields map[string]any, err error) {
	switch code, _ := codeOf(err, exitFailure); {
	case err == nil:
	case code == exitUsage:
		return
	case code == exitFound:
		fields["outcome"] = "refused"
	case a.ctx == nil:
		fields["outcome"] = deadletters.OutcomeFailed
	default:
		fields["outcome"] = deadletters.OutcomeOf(a.ctx, err)
	}
	if err != nil {
		fields["error"] = a.redact(err.Error())
	}
	a.audit(action, fields)
}

// auditEnd audits the end of a verb that asks, if the verb has written no audit line: its servers
// were away before its question, or it found nothing to change.
func (a *app) auditEnd(verbName string, err error) {
	const asksAndAudits = usesQuestion | usesAudit
	if verbs[verbName].uses&asksAndAudits != asksAndAudits || a.isOnRecord() {
		return
	}
	fields := maps.Clone(a.about)
	if fields == nil {
		fields = make(map[string]any)
	}
	for name, value := range map[string]string{"group": a.group, "scope": a.scope} {
		if value != "" {
			fields[name] = value
		}
	}
	if err = unlessDryRun(err); err == nil {
		fields["note"] = "found nothing to change"
	}
	a.auditOutcome(verbName, fields, err)
}

// isOnRecord reports whether an audit line was written.
func (a *app) isOnRecord() bool {
	a.auditing.Lock()
	defer a.auditing.Unlock()
	return a.onRecord
}
