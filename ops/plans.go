package ops

import (
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"
)

// The limits of plans. A replay carries out exactly a kept plan that a person has seen.
const (
	maxPlans   = 256
	maxPlansOf = 8   // of one person: the oldest makes room
	maxPlanned = 200 // dead letters of one plan
	planLife   = 15 * time.Minute
)

// planState is the progress of a plan.
type planState string

const (
	planMade    planState = "planned"
	planRunning planState = "running"
	planDone    planState = "done"
)

// replayPlan is a plan of a person.
type replayPlan struct {
	ID        string
	Who       string
	Topic     string // the dead-letter topic
	Made      time.Time
	Expires   time.Time
	Decisions decisions
	Rows      []deadLetterRow
	Missing   []string

	State        planState
	Began, Ended time.Time
	Outcome      string // done, interrupted or failed
	Problem      string
	Results      []rowResult // of the rows that were to be replayed, as far as they are known
}

// rowResult is the outcome of a dead letter.
type rowResult struct {
	deadLetterRow
	Outcome string // replayed, skipped or failed
	Detail  string
}

// sameAs reports whether a dead letter is still as a plan has shown it: the same event, the same
// verdict of the store, and the same step of a replay.
func (r *deadLetterRow) sameAs(planned *deadLetterRow) bool {
	return r.ID == planned.ID && r.Type == planned.Type && r.Tenant == planned.Tenant &&
		r.Failed.Equal(planned.Failed) &&
		r.Verdict == planned.Verdict && r.Action == planned.Action
}

// Wanted are the rows of dead letters that a replay would replay.
func (p *replayPlan) Wanted() (rows []deadLetterRow) {
	for i := range p.Rows {
		if p.Rows[i].Replays() {
			rows = append(rows, p.Rows[i])
		}
	}
	return rows
}

// Replayed is the number of replayed dead letters.
func (p *replayPlan) Replayed() (n int) {
	for i := range p.Results {
		if p.Results[i].Outcome == outcomeReplayed {
			n++
		}
	}
	return n
}

// Level is the level of the outcome. Dead letters that were left alone need a look and are no
// success.
func (p *replayPlan) Level() string {
	switch {
	case p.State != planDone:
		return "info"
	case p.Outcome != outcomeDone:
		return "bad"
	case p.Replayed() < len(p.Wanted()):
		return "warn"
	}
	return "ok"
}

var (
	errNoPlan      = errors.New("no such plan")
	errPlanDone    = errors.New("the plan was carried out already")
	errPlanRunning = errors.New("the plan is being carried out")
	errPlanOthers  = errors.New("the plan belongs to another user")
	errTooMany     = errors.New("too many plans are kept")
	errOneAtATime  = errors.New("another replay is under way")
)

// plans are the kept plans.
type plans struct {
	mu  sync.Mutex
	all map[string]*replayPlan
}

func newPlans() *plans { return &plans{all: make(map[string]*replayPlan)} }

// add keeps a plan under a random id. If the person has many plans, the oldest one that is not
// running makes room. The plans of others stay.
func (p *plans) add(now time.Time, n *replayPlan) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	if p.count(n.Who) >= maxPlansOf && !p.makeRoom(n.Who) || len(p.all) >= maxPlans {
		return errTooMany
	}
	n.ID, n.State = rand.Text(), planMade
	n.Made, n.Expires = now, now.Add(planLife)
	p.all[n.ID] = n
	return nil
}

func (p *plans) expire(now time.Time) {
	for id, one := range p.all {
		if one.State != planRunning && !now.Before(one.Expires) {
			delete(p.all, id)
		}
	}
}

func (p *plans) count(who string) (n int) {
	for _, one := range p.all {
		if one.Who == who {
			n++
		}
	}
	return n
}

// makeRoom forgets the oldest finished plan of a person, or else the oldest plan that is not
// running.
func (p *plans) makeRoom(who string) bool {
	for _, state := range []planState{planDone, planMade} {
		var oldest *replayPlan
		for _, one := range p.all {
			if one.Who == who && one.State == state &&
				(oldest == nil || one.Made.Before(oldest.Made)) {
				oldest = one
			}
		}
		if oldest != nil {
			delete(p.all, oldest.ID)
			return true
		}
	}
	return false
}

// find returns a copy of a plan of the person.
func (p *plans) find(now time.Time, id, who string) (replayPlan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, err := p.get(now, id, who)
	if err != nil {
		return replayPlan{}, err
	}
	c := *one
	c.Results = slices.Clone(one.Results)
	return c, nil
}

func (p *plans) get(now time.Time, id, who string) (*replayPlan, error) {
	p.expire(now)
	one := p.all[id]
	switch {
	case one == nil:
		return nil, errNoPlan
	case one.Who != who:
		return nil, errPlanOthers
	}
	return one, nil
}

// begin marks a plan as running, once. One plan runs at a time.
func (p *plans) begin(now time.Time, id, who string) (replayPlan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, err := p.get(now, id, who)
	switch {
	case err != nil:
		return replayPlan{}, err
	case one.State == planRunning:
		return replayPlan{}, errPlanRunning
	case one.State == planDone:
		return replayPlan{}, errPlanDone
	}
	for _, other := range p.all {
		if other.State == planRunning {
			return replayPlan{}, errOneAtATime
		}
	}
	one.State, one.Began = planRunning, now
	return *one, nil
}

// note adds the outcome of a dead letter.
func (p *plans) note(id string, r rowResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.all[id]; one != nil {
		one.Results = append(one.Results, r)
	}
}

// end sets the outcome. The plan is kept for the same time again, for the answer to a second
// confirmation.
func (p *plans) end(now time.Time, id, outcome, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.all[id]; one != nil {
		one.State, one.Ended, one.Outcome, one.Problem = planDone, now, outcome, problem
		one.Expires = now.Add(planLife)
	}
}

// The outcomes of rows and replays, as the page and audit lines have them.
const (
	outcomeBegun       = "begun"
	outcomeReplayed    = "replayed"
	outcomeSkipped     = "skipped"
	outcomeFailed      = "failed"
	outcomeDone        = "done"
	outcomeInterrupted = "interrupted"
)
