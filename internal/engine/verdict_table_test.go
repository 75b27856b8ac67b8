package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// answered is an answer of the store with the other inputs of verdict.
type answered struct {
	answer dedup.Answer
	policy Policy
	past   attempts
	facts  facts
}

func (a *answered) granted() bool {
	return a.answer.Verdict == dedup.Fresh || a.answer.Verdict == dedup.Uncertain
}

func (a *answered) is(v dedup.Verdict) bool { return a.answer.Verdict == v }

func (a *answered) knows(v dedup.Verdict) bool { return a.is(dedup.Conflict) && a.answer.Known == v }

func (a *answered) skips(v dedup.Verdict) bool {
	return a.knows(v) && a.policy.Conflict == idemtype.SkipConflict
}

func (a *answered) discarded() bool { return strings.HasPrefix(a.answer.Reason, "discarded: ") }

func (a *answered) pause() time.Duration {
	if a.facts.notBefore.IsZero() {
		return 0
	}
	return a.facts.notBefore.Sub(a.facts.now)
}

// wantDecision is the result of verdict.
type wantDecision struct {
	step    verdictStep
	class   idemtype.Class // of a dead letter of the copy
	end     ending
	queue   bool
	joins   bool
	refusal wantRefusal
}

type wantRefusal struct {
	meaning meaning
	class   idemtype.Class
	after   time.Duration
	unbegun bool
}

func refused(m meaning, c idemtype.Class) wantDecision {
	return wantDecision{step: stepRefuse, refusal: wantRefusal{meaning: m, class: c}}
}

func copyLetter(c idemtype.Class, e ending) wantDecision {
	return wantDecision{step: stepDeadLetterCopy, class: c, end: e}
}

var conflictLetter = func(*answered) wantDecision { return copyLetter(idemtype.ClassConflict, endNone) }

const skipped = "Skips the duplicate"

// verdictTable has the meaning of each answer of the store.
var verdictTable = decisionTable[answered, wantDecision]{
	// The claim is granted.
	{
		"uncertain, in a transaction", func(a *answered) bool { return a.is(dedup.Uncertain) && a.facts.tx },
		constant[answered](wantDecision{}),
		absent("a transaction leaves no doubt; a store that answers so is asked again, as after no answer"),
	},
	{
		"uncertain, at most once", func(a *answered) bool {
			return a.is(dedup.Uncertain) && a.policy.Uncertain == idemtype.DeadLetterUncertain && !a.facts.shadow
		},
		constant[answered](refused(unknown, idemtype.ClassUncertain)),
		line("verdict", "Uncertain (`On`): an earlier claim ended without a completion", "`DeadLetterUncertain`, outside shadow mode", "Dead letter `uncertain`"),
	},
	{
		"granted, not due", func(a *answered) bool { return a.granted() && a.pause() > 0 },
		func(a *answered) wantDecision {
			w := refused(transient, idemtype.ClassRetryAfter)
			w.refusal.after = a.pause()
			return w
		},
		line("verdict", "Fresh, Uncertain", "`RetryAfter` asked for more time than the longest delay, and it has not passed", "[Delayed retry](#after-the-attempts-in-place) without a run"),
	},
	{
		"granted, tries spent", func(a *answered) bool {
			return a.granted() && a.past.earlier == 0 && int(a.answer.Failures) >= a.policy.Retry.MaxAttempts
		},
		constant[answered](refused(transient, idemtype.ClassFailed)),
		line("verdict", "Fresh, Uncertain", "All attempts have failed, and a crash or an outage came before the dead letter", "[Delayed retry or dead letter](#after-the-attempts-in-place) `failed`, without a run"),
	},
	{
		"granted, crash loop", func(a *answered) bool { return a.granted() && a.answer.Takeovers > 3 },
		constant[answered](refused(unknown, idemtype.ClassCrashLoop)),
		line("verdict", "Fresh, Uncertain", "More than 3 holders of the claim crashed", "Dead letter `crash-loop`"),
	},
	{
		"granted, unreadable", func(a *answered) bool { return a.granted() && a.facts.refusal.err != nil },
		func(a *answered) wantDecision {
			o := a.facts.refusal
			return wantDecision{step: stepRefuse, refusal: wantRefusal{o.meaning, o.class, o.after, o.unbegun}}
		},
		line("verdict", "Fresh, Uncertain", "The delayed retry could not be read", "Delayed retry or dead letter, as the error says"),
	},
	{
		"granted, taken over", func(a *answered) bool { return a.granted() && a.answer.Takeovers > 0 },
		constant[answered](wantDecision{step: stepRun}),
		absent("only claim groups differ: a taken-over event runs by itself"),
	},
	{
		"fresh", func(a *answered) bool { return a.is(dedup.Fresh) },
		constant[answered](wantDecision{step: stepRun, joins: true}),
		line("verdict", "Fresh: unknown, or released for another attempt", "–", "Runs the handler"),
	},
	{
		"uncertain", func(a *answered) bool { return a.is(dedup.Uncertain) },
		constant[answered](wantDecision{step: stepRun, joins: true}),
		line("verdict", "Uncertain (`On`)", "`RerunUncertain` (default), or shadow mode", "Runs the handler with `e.Uncertain`"),
	},
	// Another holder.
	{
		"busy", func(a *answered) bool { return a.is(dedup.Busy) },
		constant[answered](wantDecision{step: stepBusy}),
		line("verdict", "Busy: another worker has the claim or the transaction", "–", "Waits, because that run may fail, and asks again"),
	},
	// Known events.
	{
		"known, shadow", func(a *answered) bool {
			return a.facts.shadow && (a.is(dedup.Done) || a.is(dedup.Dead) || a.is(dedup.Rescheduled) || a.is(dedup.Conflict) || a.is(dedup.TooOld))
		},
		constant[answered](wantDecision{step: stepRunIgnored}),
		line("verdict", "Done, Rescheduled, Dead, Conflict, TooOld", "Shadow mode", "Runs the handler without a claim"),
	},
	{
		"done", func(a *answered) bool { return a.is(dedup.Done) },
		constant[answered](wantDecision{step: stepSkip, end: endDone, joins: true}),
		line("verdict", "Done: handled", "–", skipped),
	},
	{
		"rescheduled", func(a *answered) bool { return a.is(dedup.Rescheduled) && a.policy.Mode != KeyOrdered },
		constant[answered](wantDecision{step: stepSkip, end: endRescheduled, joins: true}),
		line("verdict", "Rescheduled: a later attempt or generation exists", "–", skipped),
	},
	{
		"rescheduled, deferred", func(a *answered) bool { return a.is(dedup.Rescheduled) && a.facts.deferred },
		constant[answered](wantDecision{step: stepSkip, end: endRescheduled}),
		sameAs("rescheduled"),
	},
	{
		"rescheduled, key ordered", func(a *answered) bool { return a.is(dedup.Rescheduled) },
		constant[answered](wantDecision{step: stepSkip, end: endRescheduled, queue: true}),
		sameAs("rescheduled"),
	},
	{
		"dead, discarded", func(a *answered) bool { return a.is(dedup.Dead) && a.discarded() },
		constant[answered](wantDecision{step: stepSkip}),
		line("verdict", "Dead: given up", "A person has discarded the event", skipped),
	},
	{
		"dead, this record", func(a *answered) bool { return a.is(dedup.Dead) && a.facts.own },
		constant[answered](wantDecision{step: stepSkip, end: endDead}),
		line("verdict", "Dead", "The same record, delivered again", skipped),
	},
	{
		"dead, a copy", func(a *answered) bool { return a.is(dedup.Dead) },
		constant[answered](copyLetter(idemtype.ClassAlreadyDead, endDead)),
		line("verdict", "Dead", "Another copy", "Dead letter `already-dead`"),
	},
	{
		"conflict, this record", func(a *answered) bool {
			return a.is(dedup.Conflict) && a.facts.own && a.facts.compared
		},
		constant[answered](wantDecision{step: stepAskAgain}),
		line("verdict", "Conflict: known with another content", "The same record, compared in another way since an upgrade", "Asks again without the content"),
	},
	{
		"conflict, done", func(a *answered) bool { return a.skips(dedup.Done) },
		constant[answered](wantDecision{step: stepSkip, joins: true}),
		line("conflict", "done", "`SkipConflict` (default)", "Skips the copy, counts and logs it"),
	},
	{
		"conflict, in flight", func(a *answered) bool { return a.skips(dedup.Busy) },
		constant[answered](wantDecision{step: stepBusy}),
		line("conflict", "in flight", "`SkipConflict`", "Waits, and asks again"),
	},
	{
		"conflict, dead", func(a *answered) bool { return a.knows(dedup.Dead) && !a.discarded() },
		constant[answered](copyLetter(idemtype.ClassConflict, endDead)),
		sameAs("conflict, other state"),
	},
	{
		"conflict, rescheduled, key ordered", func(a *answered) bool {
			return a.knows(dedup.Rescheduled) && a.policy.Mode == KeyOrdered && !a.facts.deferred
		},
		func(*answered) wantDecision {
			w := copyLetter(idemtype.ClassConflict, endNone)
			w.queue = true
			return w
		},
		sameAs("conflict, other state"),
	},
	{
		"conflict, other state", func(a *answered) bool { return a.is(dedup.Conflict) && a.policy.Conflict == idemtype.SkipConflict },
		conflictLetter,
		line("conflict", "failed, rescheduled, dead or discarded", "`SkipConflict`", "Dead letter `conflict`"),
	},
	{
		"conflict, strict", func(a *answered) bool {
			return a.is(dedup.Conflict) && a.policy.Conflict == idemtype.DeadLetterConflict
		},
		conflictLetter,
		line("conflict", "in any state", "`DeadLetterConflict`", "Dead letter `conflict`"),
	},
	{
		"too old, stop", func(a *answered) bool { return a.is(dedup.TooOld) && a.policy.TooOld == idemtype.StopTooOld },
		constant[answered](wantDecision{step: stepStop, end: endDead}),
		line("verdict", "TooOld: older than the memory of the store", "`StopTooOld` (default of `OnTx`)", "Ends the consumer"),
	},
	{
		"too old", func(a *answered) bool { return a.is(dedup.TooOld) && a.policy.TooOld == idemtype.DeadLetterTooOld },
		constant[answered](copyLetter(idemtype.ClassTooOld, endDead)),
		line("verdict", "TooOld", "`DeadLetterTooOld` (default of `On`)", "Dead letter `too-old`"),
	},
	{
		"too old, run", func(a *answered) bool { return a.is(dedup.TooOld) && a.policy.TooOld == idemtype.RunTooOld },
		constant[answered](copyLetter(idemtype.ClassTooOld, endDead)),
		absent("the request asks for an answer that is never TooOld; a store that breaks the contract costs a dead letter"),
	},
	// No answer.
	{
		"no verdict", func(a *answered) bool { return a.is(0) },
		constant[answered](wantDecision{}),
		line("verdict", "none: the store is down, or is of a later release", "–", "Waits, and asks again"),
	},
	{
		"verdict of a later release", func(a *answered) bool { return a.answer.Verdict > dedup.TooOld },
		constant[answered](wantDecision{}),
		sameAs("no verdict"),
	},
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// answers of a store, with every count, state and reason that belongs to them.
func answers() (all []dedup.Answer) {
	for _, v := range []dedup.Verdict{dedup.Fresh, dedup.Uncertain} {
		for _, failures := range []uint32{0, 4, 5, 6} {
			for _, takeovers := range []uint32{0, 1, 3, 4} {
				all = append(all, dedup.Answer{Verdict: v, Failures: failures, Takeovers: takeovers})
			}
		}
	}
	misleading := dedup.Answer{Failures: 9, Takeovers: 9, Known: dedup.Done, Reason: "discarded: by hand"} // counts for no other verdict
	for _, v := range []dedup.Verdict{0, dedup.Busy, dedup.Done, dedup.Rescheduled, dedup.TooOld, dedup.TooOld + 1, 255} {
		noisy := misleading
		noisy.Verdict = v
		all = append(all, dedup.Answer{Verdict: v}, noisy)
	}
	for _, reason := range []string{"", "discarded", "discarded: by hand", "failed: discarded: x"} {
		all = append(all, dedup.Answer{Verdict: dedup.Dead, Reason: reason})
		for known := dedup.Verdict(0); known <= dedup.TooOld+1; known++ {
			all = append(all, dedup.Answer{Verdict: dedup.Conflict, Known: known, Reason: reason})
		}
	}
	return all
}

// walkAnswers yields every answer with every policy and fact.
func walkAnswers(yield func(*answered)) {
	unreadable := errors.New("unreadable")
	refusals := []outcome{
		{}, {meaning: permanent, class: idemtype.ClassUndecodable, err: unreadable},
		{meaning: transient, class: idemtype.ClassRetryAfter, err: unreadable, after: time.Minute, unbegun: true},
	}
	for _, a := range answers() {
		for bits := range 1 << 5 {
			has := func(i int) bool { return bits&(1<<i) != 0 }
			f := facts{now: noon, shadow: has(0), tx: has(1), deferred: has(2), own: has(3), compared: has(4)}
			for mode := Blocking; mode <= KeyOrdered; mode++ {
				for u := range idemtype.UncertainPolicy(len(uncertainRules)) {
					for _, c := range []idemtype.ConflictPolicy{idemtype.SkipConflict, idemtype.DeadLetterConflict} {
						for old := idemtype.RunTooOld; old <= idemtype.StopTooOld; old++ {
							p := Policy{Mode: mode, Uncertain: u, Conflict: c, TooOld: old, Retry: idemtype.RetryPolicy{MaxAttempts: 5}}
							walkPasts(answered{answer: a, policy: p, facts: f}, refusals, yield)
						}
					}
				}
			}
		}
	}
}

// walkPasts varies the facts that count when a claim is granted. For other answers it yields no
// such fact, and then all of them.
func walkPasts(in answered, refusals []outcome, yield func(*answered)) {
	if !in.granted() {
		yield(&in)
		in.facts.notBefore, in.facts.refusal = noon.Add(time.Minute), refusals[1]
		yield(&in)
		return
	}
	for _, at := range []time.Time{{}, noon.Add(-time.Second), noon, noon.Add(time.Nanosecond), noon.Add(time.Hour)} {
		for _, earlier := range []int{0, 5} {
			for _, refusal := range refusals {
				in.facts.notBefore, in.facts.refusal, in.past.earlier = at, refusal, earlier
				yield(&in)
			}
		}
	}
}

func TestVerdict_Table(t *testing.T) {
	t.Parallel()
	verdictTable.check(t, walkAnswers, func(a *answered, want wantDecision) string {
		d := verdict(a.answer, &a.policy, &a.past, a.facts)
		got := wantDecision{
			step: d.step, class: d.class, end: d.ending, queue: d.queue, joins: d.joins,
			refusal: wantRefusal{d.outcome.meaning, d.outcome.class, d.outcome.after, d.outcome.unbegun},
		}
		switch {
		case got != want:
			return fmt.Sprintf("decided %+v, wanted %+v", got, want)
		case d.outcome.refused != (want.step == stepRefuse), (d.outcome.err != nil) != (want.step == stepRefuse):
			return fmt.Sprintf("refusal %+v", d.outcome)
		case (d.err != nil) != (want.step == stepStop || want.step == stepDeadLetterCopy):
			return fmt.Sprintf("error %v", d.err)
		case errors.Is(d.err, idemtype.ErrTooOld) != (want.step == stepStop):
			return fmt.Sprintf("error %v", d.err)
		}
		return ""
	})
}
