package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"
)

// This file carries plans out.

// The outcomes of rows and replays, as the page and audit lines have them.
const (
	outcomeBegun       = "begun"
	outcomeReplayed    = "replayed"
	outcomeSkipped     = "skipped"
	outcomeFailed      = "failed"
	outcomeDone        = "done"
	outcomeInterrupted = "interrupted"
)

// replayPatience is how long the answer waits for the end of a replay, so that most are shown whole at once.
const replayPatience = 3 * time.Second

func (h *Handler) replay(v *visit) error {
	if !h.cfg.AllowReplay {
		return &pageError{403, "Read-only", "Nobody may replay dead letters here: the program has not set ops.Config.AllowReplay."}
	}
	if h.src.letters == nil {
		return &pageError{404, "No dead letters", howKafka}
	}
	if h.ctx.Err() != nil {
		return &pageError{503, "Not now", "The page is being closed."}
	}
	id := clipped(v.r.PostForm.Get("id"))
	query := url.Values{"id": {id}}
	p, err := h.plans.begin(h.now(), id, v.who)
	switch {
	case errors.Is(err, errPlanDone):
		query.Set("note", "done")
		return v.to("plan", query)
	case errors.Is(err, errPlanRunning):
		query.Set("note", "running")
		return v.to("plan", query)
	case err != nil:
		return planError(err)
	}
	done := make(chan struct{})
	h.work.Go(func() { // who has asked may go: what was begun ends
		defer close(done)
		h.carryOut(&p)
	})
	_ = wait(v.context(), done, replayPatience) // the page says how far it is
	return v.to("plan", query)
}

// carryOut replays what was planned and nothing else: letters that are not what they were any longer are left alone.
func (h *Handler) carryOut(p *replayPlan) {
	ctx := h.ctx
	wanted := p.Wanted()
	h.audit(ctx, p, nil, outcomeBegun, plural(len(wanted), "letter"))
	outcome, problem := outcomeDone, ""
	if err := h.replayRows(ctx, p, wanted); err != nil {
		outcome, problem = outcomeFailed, problemText(err)
		if ctx.Err() != nil {
			outcome = outcomeInterrupted
		}
	}
	h.audit(ctx, p, nil, outcome, problem)
	h.plans.end(h.now(), p.ID, outcome, problem)
}

func (h *Handler) replayRows(ctx context.Context, p *replayPlan, wanted []letterRow) error {
	if len(wanted) == 0 {
		return nil
	}
	places := make([]letterPlace, len(wanted))
	planned := make(map[letterPlace]*letterRow, len(wanted))
	for i := range wanted {
		places[i] = wanted[i].letterPlace
		planned[places[i]] = &wanted[i]
	}
	again, err := shielded(ctx, func(ctx context.Context) (letterPlan, error) {
		return h.src.letters.plan(ctx, p.Topic, places, p.Decisions)
	})
	if err != nil {
		return err
	}
	var same []letterPlace
	for i := range again.Rows {
		now := &again.Rows[i]
		before := planned[now.letterPlace]
		if before == nil {
			continue
		}
		delete(planned, now.letterPlace)
		if now.ID == before.ID && now.Type == before.Type && now.Tenant == before.Tenant && now.Failed.Equal(before.Failed) && now.Replays() {
			same = append(same, now.letterPlace)
			continue
		}
		h.tell(ctx, p, now, outcomeSkipped, "not what it was when it was planned: "+now.Verdict)
	}
	for _, gone := range planned {
		h.tell(ctx, p, gone, outcomeSkipped, "it is not in its topic any longer")
	}
	if len(same) == 0 {
		return nil
	}
	_, err = shielded(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.src.letters.replay(ctx, p.Topic, same, p.Decisions, func(row letterRow, replayed bool, err error) {
			switch {
			case err != nil:
				h.tell(ctx, p, &row, outcomeFailed, problemText(err))
			case replayed:
				h.tell(ctx, p, &row, outcomeReplayed, row.Action)
			default:
				h.tell(ctx, p, &row, outcomeSkipped, row.Verdict)
			}
		})
	})
	return err
}

// tell says what became of a letter.
func (h *Handler) tell(ctx context.Context, p *replayPlan, row *letterRow, outcome, detail string) {
	if row.Note != "" && outcome != outcomeReplayed {
		detail += ": " + row.Note
	}
	h.plans.note(p.ID, rowResult{letterRow: *row, Outcome: outcome, Detail: clip(detail, maxErrorText)})
	h.audit(ctx, p, row, outcome, detail)
}

// audit writes who did what to which letter, or to all of a plan if row is nil. Payloads are not in it (G-04).
func (h *Handler) audit(ctx context.Context, p *replayPlan, row *letterRow, outcome, note string) {
	e := AuditEvent{
		Time: h.now(), Who: p.Who, Action: "replay", Plan: p.ID, Group: h.cfg.Consumer.Group, Outcome: outcome, Note: clip(note, maxErrorText),
	}
	attrs := []slog.Attr{slog.String("who", e.Who), slog.String("plan", e.Plan), slog.String("group", e.Group), slog.String("outcome", outcome)}
	if row != nil {
		e.Action, e.Letter, e.EventType, e.EventID = "replay letter", row.letterPlace.String(), row.Type, row.ID
		attrs = append(attrs, slog.String("letter", e.Letter), slog.String("type", e.EventType), slog.String("event_id", e.EventID))
	}
	if note != "" {
		attrs = append(attrs, slog.String("note", e.Note))
	}
	h.cfg.Logger.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "ops page: "+e.Action, attrs...)
	if h.cfg.Audit == nil {
		return
	}
	defer func() { // no request is there to recover it, and the consumer must not end with it
		if v := recover(); v != nil {
			h.cfg.Logger.ErrorContext(context.WithoutCancel(ctx), "ops page: ops.Config.Audit panicked", "plan", e.Plan, "panic", fmt.Sprintf("%T", v))
		}
	}()
	h.cfg.Audit(context.WithoutCancel(ctx), e)
}
