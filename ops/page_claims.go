package ops

import (
	"time"

	"github.com/idem-go/idem/dedup"
)

// claimsView has the claims in flight and the stuck ones.
type claimsView struct {
	Own     bool // this process has a monitor
	Running []runningCall
	More    int // that are not listed
	Stuck   part[[]storeClaims]
}

func (h *Handler) showClaims(v *visit) error {
	c := &claimsView{Own: h.src.monitor != nil, Stuck: fromCell(v.context(), h.cells.claims, howStore)}
	if m := h.src.monitor; m != nil {
		c.Running, c.More = m.runningCalls(h.cfg.Consumer.Group)
	}
	return h.show(v, 200, "claims", "Claims", liveEvery, c)
}

// deferredView has the deferred events of the stores.
type deferredView struct {
	State part[deferredState]
	Sums  queueSums
}

func (h *Handler) showDeferred(v *visit) error {
	p := &deferredView{State: fromCell(v.context(), h.cells.deferred, howStore)}
	p.Sums = p.State.Value.sums()
	return h.show(v, 200, "deferred", "Deferred events", liveEvery, p)
}

func (h *Handler) showOutbox(v *visit) error {
	return h.show(v, 200, "outbox", "Outbox", liveEvery, fromCell(v.context(), h.cells.outbox, howOutbox))
}

// doctorView has the findings of the doctor, the worst first.
type doctorView struct {
	Findings part[[]Finding]
	Groups   []findingGroup
	Counts   map[string]int
}

type findingGroup struct {
	Verdict, Title, Level string
	Findings              []Finding
}

func (h *Handler) showDoctor(v *visit) error {
	d := &doctorView{Findings: fromCell(v.context(), h.cells.doctor, howDoctor), Counts: map[string]int{}}
	d.Groups = []findingGroup{
		{
			Verdict: "bad", Title: "Loses, doubles or stops", Level: "bad",
		}, {Verdict: "warn", Title: "Loses or doubles under circumstances", Level: "warn"},
		{
			Verdict: "unknown", Title: "Could not be looked at", Level: "warn",
		}, {Verdict: "ok", Title: "In order", Level: "ok"},
		{Verdict: "skipped", Title: "Does not apply", Level: "info"},
	}
	for _, f := range d.Findings.Value {
		d.Counts[f.Verdict]++
		for i := range d.Groups {
			if d.Groups[i].Verdict == f.Verdict {
				d.Groups[i].Findings = append(d.Groups[i].Findings, f)
			}
		}
	}
	live := time.Duration(0)
	if d.Findings.Problem != "" { // the doctor is still running
		live = 5 * time.Second
	}
	return h.show(v, 200, "doctor", "Doctor", live, d)
}

// HeadLink leads to the look-up of the first event of a queue.
func (p *deferredView) HeadLink(e *dedup.Deferred) string { return eventLink(e.Key) }
