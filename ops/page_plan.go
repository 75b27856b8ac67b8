package ops

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/words"
)

// planView is a plan and its outcome.
type planView struct {
	Plan    replayPlan
	Allowed bool
	Off     bool // no person may replay
	Notice  string
	Waits   time.Duration // until the plan expires
}

// makePlan asks the stores about dead letters and keeps the answers. The stores stay unchanged.
func (h *Handler) makePlan(v *visit) error {
	if h.src.deadLetters == nil {
		return &pageError{404, "No dead letters", howKafka}
	}
	topic, at, err := chosenDeadLetters(v)
	if err != nil {
		return err
	}
	if err := h.ownTopic(v, topic); err != nil {
		return err
	}
	if !h.may(v, planned(ActionPlan, "plan", "", topic, at)) {
		return errNotAllowed
	}
	d := decisions{
		Again: v.r.PostForm.Get("again") != "", Forgotten: v.r.PostForm.Get("forgotten") != "",
		List: len(at) > 1,
	}
	p := ask(
		v, &h.background, planLimit,
		func(ctx context.Context) (deadLetterPlan, error) { return h.src.deadLetters.plan(ctx, topic, at, d) },
	)
	if p.Problem != "" {
		return &pageError{503, "No plan could be made", p.Problem}
	}
	n := &replayPlan{
		Who: v.who, Topic: topic, Decisions: d, Rows: p.Value.Rows, Missing: p.Value.Missing,
	}
	if err := h.plans.add(h.now(), n); err != nil {
		return planError(err)
	}
	return v.to("plan", url.Values{"id": {n.ID}})
}

// planLimit limits the time for a plan, which reads a topic to compare the dead letters of one
// event.
const planLimit = 30 * time.Second

// chosenDeadLetters are those that were ticked, or all that were listed.
func chosenDeadLetters(v *visit) (topic string, at []deadLetterPlace, err error) {
	form := v.r.PostForm
	topic = clipped(form.Get("topic"))
	list := form["at"]
	if form.Get("all") != "" {
		list = form["listed"]
	}
	slices.Sort(list)
	list = slices.Compact(list)
	switch {
	case len(list) == 0:
		return "", nil, &pageError{
			400, "Nothing was chosen", "Go back and tick the dead letters that are to be replayed.",
		}
	case len(list) > maxPlanned:
		return "", nil, &pageError{
			400,
			"Too many dead letters",
			"A plan has at most " + words.Number(
				maxPlanned,
			) + ". For more there is the command idem dlq replay.",
		}
	}
	for _, text := range list {
		p, err := parsePlace(topic, text)
		if err != nil {
			return "", nil, err
		}
		at = append(at, p)
	}
	return topic, at, nil
}

// planRefused answers a request for an unavailable plan. A plan of another person is a refusal,
// which is logged and audited.
func (h *Handler) planRefused(v *visit, kind ActionKind, id string, err error) error {
	if errors.Is(err, errPlanOthers) {
		h.refused(v, Action{Kind: kind, Page: "plan", Plan: id}, err.Error())
	}
	return planError(err)
}

func planError(err error) error {
	switch {
	case errors.Is(err, errPlanOthers):
		return &pageError{
			403, "Plan of another user", "Only the user who made a plan can carry it out. Make a plan of your own.",
		}
	case errors.Is(err, errOneAtATime):
		return &pageError{409, "Not now", "Another replay is under way. Wait for its end."}
	case errors.Is(err, errTooMany):
		return &pageError{
			409,
			"Not now",
			"Too many plans are kept, or all of yours are being carried out. Plans are kept for " + span(
				planLife,
			) + ".",
		}
	}
	return &pageError{
		404,
		"This plan is not known any longer",
		"Plans are kept for " + span(
			planLife,
		) + " by this process. No dead letter was replayed now. The log shows earlier replays, and a new plan shows the open dead letters.",
	}
}

func (h *Handler) showPlan(v *visit) error {
	p, err := h.plans.find(h.now(), v.query("id"), v.who)
	if err != nil {
		return h.planRefused(v, ActionView, v.query("id"), err)
	}
	view := &planView{Plan: p, Off: !h.cfg.AllowReplay, Waits: p.Expires.Sub(h.now())}
	view.Allowed = h.offers(v, p.replay())
	switch v.query("note") {
	case "done":
		view.Notice = "Already done: this plan was carried out before, and nothing was done now."
	case "running":
		view.Notice = "It is under way already. Nothing was begun a second time."
	}
	live := time.Duration(0)
	if p.State == planRunning {
		live = time.Second
	}
	return h.show(v, 200, "plan", "Plan of a replay", live, view)
}
