package ops

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/idem-go/idem/internal/words"
)

// This file carries plans out.

// replayWait is how long the answer waits for the end of a replay. Most replays end within that
// time.
const replayWait = 3 * time.Second

func (h *Handler) replay(v *visit) error {
	if !h.cfg.AllowReplay {
		h.refused(
			v, Action{Kind: ActionReplay, Page: "replay", Plan: clipped(v.r.PostForm.Get("id"))},
			"ops.Config.AllowReplay is not set",
		)
		return &pageError{
			403, "Read-only",
			"Replays are off: the program has not set ops.Config.AllowReplay.",
		}
	}
	if h.src.deadLetters == nil {
		return &pageError{404, "No dead letters", howKafka}
	}
	if h.ctx.Err() != nil {
		return &pageError{503, "Not now", "The page is being closed."}
	}
	id := clipped(v.r.PostForm.Get("id"))
	query := url.Values{"id": {id}}
	if err := h.mayReplay(v, id); err != nil {
		return err
	}
	p, err := h.plans.begin(h.now(), id, v.who)
	switch {
	case errors.Is(err, errPlanDone):
		query.Set("note", "done")
		return v.to("plan", query)
	case errors.Is(err, errPlanRunning):
		query.Set("note", "running")
		return v.to("plan", query)
	case err != nil:
		return h.planRefused(v, ActionReplay, id, err)
	}
	done := make(chan struct{})
	h.work.Go(func() { // the replay goes on without the request
		defer close(done)
		h.carryOut(&p)
	})
	_ = wait(v.context(), done, replayWait) // the page shows the progress
	return v.to("plan", query)
}

// mayReplay asks whether the person may replay the dead letters of a plan.
func (h *Handler) mayReplay(v *visit, id string) error {
	p, err := h.plans.find(h.now(), id, v.who)
	if err != nil {
		return h.planRefused(v, ActionReplay, id, err)
	}
	if !h.may(v, p.replay()) {
		return errNotAllowed
	}
	return nil
}

// replay is the action of carrying the plan out.
func (p *replayPlan) replay() Action {
	wanted := p.Wanted()
	places := make([]deadLetterPlace, len(wanted))
	for i := range wanted {
		places[i] = wanted[i].deadLetterPlace
	}
	return planned(ActionReplay, "replay", p.ID, p.Topic, places)
}

// carryOut replays the dead letters of a plan. Dead letters that have changed since are left alone.
func (h *Handler) carryOut(p *replayPlan) {
	ctx := h.ctx
	wanted := p.Wanted()
	h.auditReplay(ctx, p, nil, outcomeBegun, words.Count(len(wanted), "dead letter"))
	outcome, problem := outcomeDone, ""
	if err := h.replayRows(ctx, p, wanted); err != nil {
		outcome, problem = outcomeFailed, problemText(err)
		if ctx.Err() != nil {
			outcome = outcomeInterrupted
		}
	}
	h.auditReplay(ctx, p, nil, outcome, problem)
	h.plans.end(h.now(), p.ID, outcome, problem)
}

// replayRows replays the planned dead letters. The stores are asked about each right before its
// replay, and one that is no longer as planned is left alone.
func (h *Handler) replayRows(ctx context.Context, p *replayPlan, wanted []deadLetterRow) error {
	if len(wanted) == 0 {
		return nil
	}
	untold := make(map[deadLetterPlace]*deadLetterRow, len(wanted))
	for i := range wanted {
		untold[wanted[i].deadLetterPlace] = &wanted[i]
	}
	_, err := shielded(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.src.deadLetters.replay(
			ctx, p.Topic, wanted, p.Decisions, func(done deadLetterDone) {
				planned := untold[done.Row.deadLetterPlace]
				if planned == nil { // told before, or not planned
					return
				}
				delete(untold, done.Row.deadLetterPlace)
				h.tellDone(ctx, p, planned, &done)
			},
		)
	})
	if err == nil {
		for _, gone := range untold {
			h.tell(ctx, p, gone, outcomeSkipped, notInTopic)
		}
	}
	return err
}

const notInTopic = "it is not in its topic any longer"

// tellDone records and audits the result for a planned dead letter.
func (h *Handler) tellDone(
	ctx context.Context, p *replayPlan, planned *deadLetterRow, done *deadLetterDone,
) {
	row := &done.Row
	switch {
	case done.Err != nil:
		h.tell(ctx, p, row, outcomeFailed, problemText(done.Err))
	case done.Replayed:
		h.tell(ctx, p, row, outcomeReplayed, row.Action)
	case done.Gone:
		h.tell(ctx, p, planned, outcomeSkipped, notInTopic)
	case done.Changed:
		h.tell(ctx, p, row, outcomeSkipped, "changed since the plan: "+row.Verdict)
	default:
		h.tell(ctx, p, row, outcomeSkipped, row.Verdict)
	}
}

// tell records and audits the outcome of a dead letter.
func (h *Handler) tell(
	ctx context.Context, p *replayPlan, row *deadLetterRow, outcome, detail string,
) {
	if row.Note != "" && outcome != outcomeReplayed {
		detail += ": " + row.Note
	}
	h.plans.note(
		p.ID, rowResult{deadLetterRow: *row, Outcome: outcome, Detail: clip(detail, maxErrorText)},
	)
	h.auditReplay(ctx, p, row, outcome, detail)
}
