package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// ended is a run that has ended, or was refused, with everything that decide looks at.
type ended struct {
	o    outcome
	p    Policy
	past attempts
	at   moment
}

// wantAction is an action. Its pause may be drawn, and lies between two bounds.
type wantAction struct {
	kind        actionKind
	least, most time.Duration
	notBefore   time.Time
	counted     bool
	releasedAs  dedup.Outcome
}

func (e *ended) is(m ...meaning) bool {
	for _, m := range m {
		if e.o.meaning == m {
			return true
		}
	}
	return false
}

// began reports whether the handler was called.
func (e *ended) began() bool { return !e.o.refused && !e.o.unbegun }

// atMostOnce reports whether a claimed handler must not run again in doubt.
func (e *ended) atMostOnce() bool {
	return e.at.claimed && e.p.Uncertain == idemtype.DeadLetterUncertain
}

// failures in a row that are not the event's, and time that only the handler reports an outage.
func (e *ended) blamed() bool {
	if e.o.marked {
		down := e.past.downSince
		return e.p.Retry.Outage != idemtype.Forever && !down.IsZero() && !down.Add(e.p.Retry.Outage).After(e.at.now)
	}
	return e.past.outages >= 6
}

// pause returns the bounds of the pause before the next attempt in place: drawn from zero to a
// limit that doubles with each attempt, and not below that of RetryAfter.
func (e *ended) pause() (least, most time.Duration) {
	limit := e.p.Retry.MinBackoff
	for i := 1; i < e.past.attempt && limit < e.p.Retry.MaxBackoff; i++ {
		limit *= 2
	}
	limit = min(limit, e.p.Retry.MaxBackoff)
	if e.at.draw == 0 {
		least, most = 1, time.Microsecond
	} else { // close to 1
		least, most = limit-limit/100, limit
	}
	return max(least, e.o.after), max(most, e.o.after)
}

// triesTable is whether there is another attempt in place.
var triesTable = decisionTable[ended, bool]{
	{
		"refused", func(e *ended) bool { return e.o.refused },
		constant[ended](false),
		absent("the table of answers says when an event that was claimed does not run"),
	},
	{
		"delayed", func(e *ended) bool { return e.at.retry > 0 && e.past.attempt > e.past.earlier },
		constant[ended](false),
		line("tries", "a delayed retry", "It has run once", "No attempt is left"),
	},
	{
		"runs", func(e *ended) bool {
			return e.at.retry == 0 && e.past.attempt-e.past.earlier >= e.p.Retry.MaxAttempts
		},
		constant[ended](false),
		line("tries", "other events", "They have run `MaxAttempts` times (5)", "No attempt is left"),
	},
	{
		"without a limit", func(e *ended) bool { return e.p.Retry.InPlace == idemtype.Forever },
		constant[ended](true),
		line("tries", "other events", "`InPlace` is `Forever`", "Another attempt, as in the last row"),
	},
	{
		"time", func(e *ended) bool {
			least, _ := e.pause()
			return e.past.blockedSince.Add(e.p.Retry.InPlace).Before(e.at.now.Add(least))
		},
		constant[ended](false),
		line("tries", "other events", "The next attempt would begin more than `InPlace` (5 s) after the first failure", "No attempt is left"),
	},
	{
		"left", always[ended], constant[ended](true),
		line("tries", "other events", "Otherwise", "Another attempt, after a random pause: up to `MinBackoff` (100 ms), doubled with each attempt up to `MaxBackoff` (2 s), and at least that of `RetryAfter`"),
	},
}

func (e *ended) triesLeft() bool { left, _ := triesTable.decide(e); return left }

// releaseTable is the outcome for a claim if the dead letter or delayed retry cannot be published.
var releaseTable = decisionTable[ended, dedup.Outcome]{
	{
		"refused", func(e *ended) bool { return e.o.refused },
		constant[ended](dedup.Unstarted),
		absent("the page has a sentence"),
	},
	{
		"without an effect", func(e *ended) bool { return e.is(notApplied) || e.o.unapplied },
		constant[ended](dedup.Failed),
		absent("the page has a sentence"),
	},
	{
		"at most once", func(e *ended) bool { return e.p.Uncertain == idemtype.DeadLetterUncertain },
		constant[ended](dedup.Unknown),
		absent("the page has a sentence"),
	},
	{
		"failed", always[ended], constant[ended](dedup.Failed),
		absent("the page has a sentence"),
	},
}

func (e *ended) release() dedup.Outcome { as, _ := releaseTable.decide(e); return as }

func (e *ended) letter() wantAction { return wantAction{kind: actDeadLetter, releasedAs: e.release()} }

// delayed is a delayed retry after the i-th delay.
func (e *ended) delayed(i int, counted bool) wantAction {
	if i < 0 || i >= len(e.p.Delays) { // an input of a row before
		return wantAction{}
	}
	w := wantAction{kind: actDelayedRetry, least: e.p.Delays[i], most: e.p.Delays[i], counted: counted, releasedAs: e.release()}
	if e.o.after > 0 {
		w.notBefore = e.at.now.Add(e.o.after)
	}
	return w
}

// laterDelay returns the first delay above that of the event's own topic that is at least as long as
// asked for, or -1.
func (e *ended) laterDelay() int {
	for i, d := range e.p.Delays {
		if d > e.at.from && d >= e.o.after {
			return i
		}
	}
	return -1
}

func (e *ended) last() int { return len(e.p.Delays) - 1 }

func (e *ended) longest() time.Duration { return slices.Max(append([]time.Duration{0}, e.p.Delays...)) }

// decideTable has the next step after each result of a run. The rows from "retry" on are about
// events that failed, and about refused ones.
var decideTable = decisionTable[ended, wantAction]{
	{
		"success", func(e *ended) bool { return e.is(succeeded) },
		constant[ended](wantAction{kind: actComplete}),
		line("decide", "success", "–", "Settles", "Done"),
	},
	{
		"refused, in doubt", func(e *ended) bool { return e.o.refused && !e.o.unbegun && e.is(unknown) },
		(*ended).letter,
		absent("the table of answers has the lines of Uncertain and of crash loops"),
	},
	{
		"at most once, in doubt", func(e *ended) bool {
			return e.atMostOnce() && e.began() && (e.is(transient, unknown, stopped) || e.is(unavailable) && !e.o.unapplied)
		},
		func(*ended) wantAction { return wantAction{kind: actDeadLetter, releasedAs: dedup.Unknown} },
		line("decide", "failure, cut short, or outage without `NotApplied`", "`On`, `DeadLetterUncertain`", "Dead letter at once", "Dead"),
	},
	{
		"claim lost", func(e *ended) bool { return e.is(claimLost) },
		constant[ended](wantAction{kind: actReclaim, releasedAs: dedup.Unknown}),
		line("decide", "claim lost", "–", "Asks the store again", "Uncertain, or the record of the new holder"),
	},
	{
		"cut short", func(e *ended) bool { return e.is(stopped) },
		constant[ended](wantAction{kind: actGiveBack, releasedAs: dedup.Unknown}),
		line("decide", "cut short", "–", "Leaves the event to the next owner", "Uncertain"),
	},
	{
		"left behind", func(e *ended) bool { return e.is(abandoned) },
		constant[ended](wantAction{kind: actGiveBack, releasedAs: dedup.Unknown}),
		line("decide", "still running at the end of `Grace`", "–", "Abandons the run; `Run` returns `idem.ErrAbandoned`", "Uncertain; a late success is recorded"),
	},
	{
		"outage", func(e *ended) bool { return e.is(unavailable) && !e.o.refused && !e.blamed() },
		constant[ended](wantAction{kind: actWait, releasedAs: dedup.Unstarted}),
		line("decide", "outage", "[Does not count as a failure](#when-an-outage-counts-as-a-failure)", "Waits and tries again; no attempt is counted", "Released"),
	},
	{
		"unnamed", func(e *ended) bool {
			return e.at.unnamed && !e.o.refused && e.p.Uncertain == idemtype.RerunUncertain && !e.is(notApplied) &&
				(e.p.Retry.InPlace == idemtype.Forever || e.o.after <= 0 ||
					e.o.after <= e.p.Retry.InPlace-e.at.now.Sub(e.past.blockedSince))
		},
		func(e *ended) wantAction {
			return wantAction{kind: actIsolate, least: e.o.after, most: e.o.after, releasedAs: dedup.Unknown}
		},
		line("decide", "failure or permanent failure", "`OnBatch` with several events, and the error names none and asks for no pause beyond `InPlace`", "Runs each event once more by itself with `e.Uncertain`, after the pause of `RetryAfter`", "Uncertain"),
	},
	{
		"permanent", func(e *ended) bool { return e.is(permanent) },
		(*ended).letter,
		line("decide", "permanent failure", "–", "Dead letter at once", "Dead"),
	},
	{
		"retry", (*ended).triesLeft,
		func(e *ended) wantAction {
			least, most := e.pause()
			return wantAction{kind: actRetry, least: least, most: most, releasedAs: dedup.Failed}
		},
		line("decide", "failure, with or without an effect, or outage that counts as one", "[Attempts in place](#attempts-in-place) are left", "Another attempt in place", "Failure counted"),
	},
	{
		"spent, blocking", func(e *ended) bool { return e.p.Mode == Blocking },
		(*ended).letter,
		line("decide", "the same", "No attempt in place is left", "[Delayed retry or dead letter](#after-the-attempts-in-place)", "Rescheduled, or dead").
			and("delayed", "`Blocking` (default)", "–", "Dead letter"),
	},
	{
		"spent, moved too often", func(e *ended) bool { return e.at.retry >= 1000 },
		(*ended).letter,
		line("delayed", "`RetryTopics`, `KeyOrdered`", "After 1,000 delayed retries", "Dead letter"),
	},
	{
		"spent, key ordered", func(e *ended) bool { return e.p.Mode == KeyOrdered && int(e.at.retry) <= e.last() },
		func(e *ended) wantAction { return e.delayed(int(e.at.retry), true) },
		line("delayed", "`KeyOrdered`", "A delay is left", "Defers the event for the next delay, or for `d` if that is longer"),
	},
	{
		"spent, key ordered, used up", func(e *ended) bool { return e.p.Mode == KeyOrdered },
		(*ended).letter,
		line("delayed", "`KeyOrdered`", "No delay is left", "Dead letter"),
	},
	{
		"spent, topics", func(e *ended) bool { return e.o.after <= 0 && e.at.from < e.longest() },
		func(e *ended) wantAction { return e.delayed(e.laterDelay(), true) },
		line("delayed", "`RetryTopics`, no `RetryAfter`", "A later delay is left", "Publishes a copy to the retry topic of the next delay"),
	},
	{
		"spent, topics, used up", func(e *ended) bool { return e.o.after <= 0 },
		(*ended).letter,
		line("delayed", "`RetryTopics`, no `RetryAfter`", "No delay is left", "Dead letter"),
	},
	{
		"later, topics", func(e *ended) bool { return e.laterDelay() >= 0 },
		func(e *ended) wantAction { return e.delayed(e.laterDelay(), true) },
		line("delayed", "`RetryTopics`, `RetryAfter(d, err)`", "A later delay is at least `d`", "Takes the shortest of them"),
	},
	{
		"later, topics, beyond the longest", func(e *ended) bool { return e.o.after > e.longest() },
		func(e *ended) wantAction { return e.delayed(e.last(), false) },
		line("delayed", "`RetryTopics`, `RetryAfter(d, err)`", "`d` is longer than every delay", "Takes the longest delay until `d` has passed; no attempt is counted"),
	},
	{
		"later, topics, not before", func(e *ended) bool { return e.at.notBefore.After(e.at.now) },
		func(e *ended) wantAction { return e.delayed(e.last(), false) },
		sameAs("later, topics, beyond the longest"),
	},
	{
		"later, topics, used up", always[ended],
		(*ended).letter,
		line("delayed", "`RetryTopics`, `RetryAfter(d, err)`", "The delays of at least `d` are used", "Dead letter"),
	},
}

// ends of runs, each with the fields that classify, verdict and the readers set.
func ends() (all []outcome) {
	for m := succeeded; m <= claimLost; m++ {
		all = append(all, outcome{meaning: m})
	}
	all = append(all,
		outcome{meaning: unavailable, marked: true},
		outcome{meaning: unavailable, marked: true, unapplied: true},
		outcome{meaning: permanent, unapplied: true},
	)
	for _, m := range []meaning{transient, notApplied, permanent, unavailable} { // of readings
		o := outcome{meaning: m, unbegun: true, marked: m == unavailable}
		all = append(all, o)
		o.refused = true
		all = append(all, o)
	}
	for _, m := range []meaning{transient, unknown, permanent} { // of answers
		all = append(all, outcome{meaning: m, refused: true})
	}
	return all
}

var tableDelays = []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute}

// policies are all modes and tries.
func policies() (all []Policy) {
	for mode := Blocking; mode <= KeyOrdered; mode++ {
		for u := range idemtype.UncertainPolicy(len(uncertainRules)) {
			for _, r := range []idemtype.RetryPolicy{{MaxAttempts: 3, InPlace: 5 * time.Second}, {MaxAttempts: idemtype.NoLimit, InPlace: idemtype.Forever}, {MaxAttempts: 3, InPlace: idemtype.Forever}} {
				r.MinBackoff, r.MaxBackoff, r.Outage = 100*time.Millisecond, 300*time.Millisecond, 15*time.Minute
				p := Policy{Mode: mode, Uncertain: u, Retry: r}
				if mode != Blocking {
					p.Delays = tableDelays
				}
				all = append(all, p)
			}
		}
	}
	return all
}

// histories are numbers of runs and times since the first failure. attempt is that of a run that
// has ended.
func histories() (all []attempts) {
	for _, earlier := range []int{0, 2} {
		for _, h := range []struct {
			run int
			ago time.Duration
		}{{1, 0}, {1, 2 * time.Second}, {1, 4900 * time.Millisecond}, {2, 4900 * time.Millisecond}, {1, 6 * time.Second}, {2, 0}, {3, 0}, {4, 0}} {
			all = append(all, attempts{attempt: earlier + h.run, earlier: earlier, blockedSince: noon.Add(-h.ago)})
		}
	}
	return all
}

// outageHistories are the other histories that matter after an outage. The first misleads other
// outcomes.
var outageHistories = []attempts{
	{outages: 9, downSince: noon.Add(-time.Hour)},
	{},
	{outages: 5},
	{outages: 6},
	{downSince: noon},
	{downSince: noon.Add(-15*time.Minute + 1)},
	{downSince: noon.Add(-15 * time.Minute)},
}

// positions are those of an original, of copies in each topic, and of copies that were moved many
// times.
var positions = []moment{
	{},
	{retry: 1, from: 10 * time.Second},
	{retry: 1, from: 20 * time.Second}, // of a delay that the handler has no longer
	{retry: 2, from: time.Minute},
	{retry: 3, from: 5 * time.Minute},
	{retry: 7, from: 5 * time.Minute},
	{retry: 999, from: 10 * time.Second},
	{retry: 1000, from: 10 * time.Second},
}

var afters = []time.Duration{
	0, -time.Second, 3 * time.Second, 3*time.Second + 1, 10 * time.Second, 30 * time.Second, 5 * time.Minute, 5*time.Minute + 1, idemtype.Forever,
}

// walkEnds yields every result that is wanted with every policy, history and position. Where more
// than one of them is unusual, some of each kind stand for the others.
func walkEnds(wanted func(outcome) bool, yield func(*ended)) {
	var e ended
	for _, e.o = range ends() {
		if !wanted(e.o) {
			continue
		}
		tried := !e.o.refused && e.is(transient, notApplied, unknown, unavailable)
		e.o.class = idemtype.ClassFailed
		for _, e.p = range policies() {
			for _, e.o.after = range afters {
				for i, tries := range histories() {
					few := i == 0 || i == 15
					if !few && !tried {
						continue
					}
					for k, outage := range outageHistories {
						if k > 0 && (!few || !e.is(unavailable)) {
							break
						}
						e.past = tries
						e.past.outages, e.past.downSince = outage.outages, outage.downSince
						walkFlags(e, few, yield)
					}
				}
			}
		}
	}
}

func walkFlags(e ended, all bool, yield func(*ended)) {
	for flags := range 1 << 3 {
		flag := moment{now: noon, claimed: flags&1 != 0, unnamed: flags&2 != 0}
		if flags&4 != 0 {
			flag.draw = 0.9999
		}
		walkPositions(&e, flag, all, yield)
	}
}

func walkPositions(e *ended, at moment, all bool, yield func(*ended)) {
	for i, pos := range positions {
		if !all && i > 1 {
			break
		}
		at.retry, at.from = pos.retry, pos.from
		e.at = at
		yield(e)
		if e.p.Mode == Unordered && all {
			for _, e.at.notBefore = range []time.Time{noon.Add(-time.Second), noon, noon.Add(time.Second)} {
				yield(e)
			}
		}
		if e.is(unavailable) {
			outage := e.p.Retry.Outage
			e.p.Retry.Outage = idemtype.Forever
			yield(e)
			e.p.Retry.Outage = outage
		}
	}
}

func TestDecide_Table(t *testing.T) {
	t.Parallel()
	walk := func(yield func(*ended)) { walkEnds(func(outcome) bool { return true }, yield) }
	decideTable.check(t, walk, func(e *ended, want wantAction) string {
		got := decide(e.o, &e.p, &e.past, e.at)
		if got.kind != want.kind || got.counted != want.counted || !got.notBefore.Equal(want.notBefore) || got.release != want.releasedAs {
			return fmt.Sprintf("decided %+v, wanted %+v", got, want)
		}
		if got.delay < want.least || got.delay > want.most {
			return fmt.Sprintf("pause of %s, wanted %s to %s", got.delay, want.least, want.most)
		}
		return ""
	})
}

// The same for the attempts in place alone: each reason for their end has its row.
func TestDecide_TriesTable(t *testing.T) {
	t.Parallel()
	walk := func(yield func(*ended)) {
		tried := func(o outcome) bool { return o.meaning == transient || o.meaning == notApplied }
		walkEnds(tried, func(e *ended) {
			if !e.at.unnamed && !e.atMostOnce() {
				yield(e)
			}
		})
	}
	triesTable.check(t, walk, func(e *ended, left bool) string {
		least, most := e.pause()
		end := e.past.blockedSince.Add(e.p.Retry.InPlace)
		if e.p.Retry.InPlace != idemtype.Forever && end.Before(e.at.now.Add(least)) != end.Before(e.at.now.Add(most)) {
			return "a pause that may lie within InPlace and beyond is no input for this table"
		}
		if got := decide(e.o, &e.p, &e.past, e.at); (got.kind == actRetry) != left {
			return fmt.Sprintf("decided %+v, attempts left: %v", got, left)
		}
		return ""
	})
}

// The same for the release after a step that could not be published.
func TestDecide_ReleaseTable(t *testing.T) {
	t.Parallel()
	walk := func(yield func(*ended)) {
		for _, o := range ends() {
			for _, p := range policies() {
				yield(&ended{o: o, p: p})
			}
		}
	}
	releaseTable.check(t, walk, func(e *ended, want dedup.Outcome) string {
		if got := e.p.unpublished(&e.o); got != want {
			return fmt.Sprintf("released as %d, wanted %d", got, want)
		}
		return ""
	})
}
