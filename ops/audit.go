package ops

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/idem-go/idem/internal/words"
)

// This file writes the audit lines, to the log and to Config.Audit.

// The actions of audit lines that are no [ActionKind].
const (
	actionEnter            = "enter"
	actionReplayDeadLetter = "replay dead letter"
)

// The outcomes of audit lines that belong to no replay.
const (
	outcomeRead    = "read"
	outcomeRefused = "refused"
)

// auditReplay writes the outcome of a dead letter, or of a whole plan if row is nil. Audit lines
// have no payloads (G-04).
func (h *Handler) auditReplay(
	ctx context.Context, p *replayPlan, row *deadLetterRow, outcome, note string,
) {
	e := AuditEvent{
		Who: p.Who, Action: string(ActionReplay), Plan: p.ID, Outcome: outcome, Note: note,
	}
	if row != nil {
		e.Action, e.DeadLetter = actionReplayDeadLetter, row.deadLetterPlace.String()
		e.EventType, e.EventID = row.Type, row.ID
	}
	h.audit(ctx, slog.LevelInfo, e)
}

// auditRead writes that a person has seen the payload of a dead letter.
func (h *Handler) auditRead(v *visit, row *deadLetterRow) {
	h.audit(v.context(), slog.LevelInfo, AuditEvent{
		Who: v.who, Action: string(ActionPayload), DeadLetter: row.deadLetterPlace.String(),
		EventType: row.Type, EventID: row.ID, Outcome: outcomeRead, Path: pathOf(v.r.URL),
	})
}

// refused writes that a person was refused an action.
func (h *Handler) refused(v *visit, a Action, why string) {
	budget := &h.refusals
	if a.Kind == actionEnter { // another site can make any number of these, which must not hide others
		budget = &h.strangers
	}
	left, ok := budget.take(h.now())
	if !ok {
		return
	}
	if left > 0 {
		why += fmt.Sprintf(" (%s before it were not written)", words.Plain(left, "refusal"))
	}
	e := AuditEvent{
		Who: v.who, Action: string(a.Kind), Plan: clip(a.Plan, maxErrorText),
		EventType: a.EventType, EventID: a.EventID, Outcome: outcomeRefused, Note: why,
		Path: pathOf(v.r.URL),
	}
	if len(a.DeadLetters) == 1 {
		e.DeadLetter = a.DeadLetters[0]
	}
	h.audit(v.context(), slog.LevelWarn, e)
}

// audit completes e and hands it on.
func (h *Handler) audit(ctx context.Context, level slog.Level, e AuditEvent) {
	ctx = context.WithoutCancel(ctx)
	e.Time, e.Group, e.Note = h.now(), h.cfg.Consumer.Group, clip(e.Note, maxErrorText)
	topic, record, _ := strings.Cut(e.DeadLetter, "/") // as the other audit lines have them
	attrs := []slog.Attr{
		slog.String("user", e.Who), slog.String("group", e.Group), slog.String("outcome", e.Outcome),
	}
	for _, x := range []struct{ name, value string }{
		{"plan", e.Plan}, {"topic", topic}, {"record", record}, {"type", e.EventType},
		{"event_id", e.EventID}, {"path", e.Path}, {"note", e.Note},
	} {
		if x.value != "" {
			attrs = append(attrs, slog.String(x.name, x.value))
		}
	}
	h.cfg.Logger.LogAttrs(ctx, level, "ops page: "+e.Action, attrs...)
	if h.cfg.Audit == nil {
		return
	}
	defer func() { // outside of a request, a panic would end the consumer
		if v := recover(); v != nil {
			h.cfg.Logger.ErrorContext(
				ctx, "ops page: ops.Config.Audit panicked", "plan", e.Plan, "panic",
				fmt.Sprintf("%T", v),
			)
		}
	}()
	h.cfg.Audit(ctx, e)
}

// pathOf is the requested path as it may be logged: without the query.
func pathOf(u *url.URL) string { return clip(u.EscapedPath(), maxErrorText) }
