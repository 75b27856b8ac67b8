package decision

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/dedup"
)

var (
	now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	mine  = dedup.Token{1}
	other = dedup.Token{2}
)

const lease = 30 * time.Second

func at(generation, retry uint32) dedup.Position {
	return dedup.Position{Generation: generation, Retry: retry}
}

// claimedBy returns a record that token claimed at the time of its lease less 30 s.
func claimedBy(token dedup.Token, until time.Time) Record {
	return Record{State: Claimed, Token: token, Lease: until, Fence: 1}
}

// TestClaim lists the rows of the table of [dedup.Store].
func TestClaim(t *testing.T) {
	sum1, sum2 := dedup.Checksum([]byte("1")), dedup.Checksum([]byte("2"))
	for name, c := range map[string]struct {
		record  Record
		request dedup.Request
		verdict dedup.Verdict
	}{
		"no record":                              {Record{}, dedup.Request{}, dedup.Fresh},
		"released":                               {Record{LastCall: Released, Token: other}, dedup.Request{}, dedup.Fresh},
		"released as unknown":                    {Record{LastCall: Released, Doubt: true}, dedup.Request{}, dedup.Uncertain},
		"claimed, lease alive":                   {claimedBy(other, now.Add(1)), dedup.Request{}, dedup.Busy},
		"claimed by the same token":              {claimedBy(mine, now.Add(1)), dedup.Request{}, dedup.Fresh},
		"claimed by the same token, lease over":  {claimedBy(mine, now), dedup.Request{}, dedup.Fresh},
		"claimed, lease over":                    {claimedBy(other, now), dedup.Request{}, dedup.Uncertain},
		"done":                                   {Record{State: Done}, dedup.Request{}, dedup.Done},
		"done, a higher attempt":                 {Record{State: Done}, dedup.Request{Position: at(0, 3)}, dedup.Done},
		"dead":                                   {Record{State: Dead}, dedup.Request{}, dedup.Dead},
		"waits for a higher attempt":             {Record{Position: at(0, 2)}, dedup.Request{Position: at(0, 1)}, dedup.Rescheduled},
		"waits for this attempt":                 {Record{Position: at(0, 2)}, dedup.Request{Position: at(0, 2)}, dedup.Fresh},
		"waits for a lower attempt":              {Record{Position: at(0, 2)}, dedup.Request{Position: at(0, 3)}, dedup.Fresh},
		"of another generation":                  {Record{Position: at(1, 0)}, dedup.Request{Position: at(2, 5)}, dedup.Rescheduled},
		"of the generation before":               {Record{Position: at(1, 0)}, dedup.Request{}, dedup.Rescheduled},
		"another fingerprint":                    {Record{Fingerprint: sum1, State: Done}, dedup.Request{Fingerprint: sum2}, dedup.Conflict},
		"another fingerprint, held":              {claimedWith(sum1), dedup.Request{Fingerprint: sum2}, dedup.Conflict},
		"another fingerprint of a replayed copy": {Record{Fingerprint: sum1, Position: at(1, 0)}, dedup.Request{Fingerprint: sum2, Position: at(1, 0)}, dedup.Fresh},
		"no fingerprint to compare":              {Record{State: Done}, dedup.Request{Fingerprint: sum2}, dedup.Done},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.record
			c.request.Retention = time.Hour
			a := c.record.Claim(mine, lease, &c.request, now)
			assert.Equal(t, c.verdict, a.Verdict)
			if a.Verdict == dedup.Fresh || a.Verdict == dedup.Uncertain {
				assert.True(t, c.record.HeldBy(mine))
				assert.Equal(t, now.Add(lease), c.record.Lease)
				assert.Equal(t, now.Add(lease+c.record.Retention), c.record.Expires, "rule 33")
				assert.Equal(t, a.Fence, c.record.Fence)
				return
			}
			assert.Equal(t, before, c.record, "a refusal writes nothing")
		})
	}
}

func claimedWith(f dedup.Fingerprint) Record {
	r := claimedBy(mine, now.Add(1))
	r.Fingerprint = f
	return r
}

func TestClaim_FenceRises(t *testing.T) {
	r := claimedBy(other, now)
	a := r.Claim(mine, lease, &dedup.Request{}, now)
	assert.Equal(t, uint64(2), a.Fence)
	assert.Equal(t, uint32(1), a.Takeovers)
	again := r.Claim(mine, lease, &dedup.Request{}, now.Add(time.Second))
	assert.Equal(t, a, again, "a repetition has the answer of the first call (R-01)")
	assert.Equal(t, now.Add(time.Second+lease), r.Lease)
}

// left returns a record that token released as Unknown.
func left(token dedup.Token) Record {
	r := claimedBy(token, now)
	r.Release(&dedup.Release{Claim: dedup.Claim{Token: token}, Outcome: dedup.Unknown}, now)
	return r
}

func TestComplete(t *testing.T) {
	for name, c := range map[string]struct {
		record          Record
		done            dedup.Completion
		served, changed bool
		state           State
	}{
		"by the holder":               {claimedBy(mine, now.Add(1)), dedup.Completion{}, true, true, Done},
		"by the holder, lease over":   {claimedBy(mine, now), dedup.Completion{}, true, true, Done},
		"by another":                  {claimedBy(other, now), dedup.Completion{}, false, false, Claimed},
		"as dead":                     {claimedBy(mine, now), dedup.Completion{Dead: "why"}, true, true, Dead},
		"for a later attempt":         {claimedBy(mine, now), dedup.Completion{Retry: 2}, true, true, Open},
		"repeated":                    {Record{State: Done, Token: mine, LastCall: Completed}, dedup.Completion{}, true, false, Done},
		"after a release":             {Record{Token: mine, LastCall: Released}, dedup.Completion{}, false, false, Open},
		"after an unknown release":    {left(mine), dedup.Completion{}, true, true, Done},
		"after a failure in doubt":    {Record{Token: mine, LastCall: Released, Doubt: true}, dedup.Completion{}, false, false, Open},
		"late as dead":                {left(mine), dedup.Completion{Dead: "why"}, false, false, Open},
		"late for a later attempt":    {left(mine), dedup.Completion{Retry: 1}, false, false, Open},
		"late, and claimed by others": {Record{Token: other, State: Claimed, Doubt: true}, dedup.Completion{}, false, false, Claimed},
	} {
		t.Run(name, func(t *testing.T) {
			c.done.Token, c.done.Retention = mine, time.Hour
			served, changed := c.record.Complete(&c.done, now)
			assert.Equal(t, []bool{c.served, c.changed}, []bool{served, changed})
			assert.Equal(t, c.state, c.record.State)
			if changed {
				assert.Equal(t, now.Add(time.Hour), c.record.Expires)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	for name, c := range map[string]struct {
		outcome  dedup.Outcome
		doubt    bool
		failures uint32
		keeps    bool // the fingerprint
	}{
		"failed":  {dedup.Failed, false, 1, true},
		"unknown": {dedup.Unknown, true, 0, true},
		"undone":  {dedup.Undone, false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := claimedWith(dedup.Checksum([]byte("1")))
			served, changed := r.Release(
				&dedup.Release{Claim: dedup.Claim{Token: mine}, Outcome: c.outcome}, now)
			assert.True(t, served && changed)
			assert.Equal(t, []any{Open, c.doubt, c.failures}, []any{r.State, r.Doubt, r.Failures})
			assert.Equal(t, c.keeps, r.Fingerprint != dedup.Fingerprint{})
			served, changed = r.Release(
				&dedup.Release{Claim: dedup.Claim{Token: other}, Outcome: c.outcome}, now)
			assert.False(t, served || changed, "another token has no claim")
		})
	}
}

// TestRelease_LateSuccess: only a run with an unknown outcome can still succeed (rule 13), also after
// an earlier run in doubt.
func TestRelease_LateSuccess(t *testing.T) {
	for outcome, late := range map[dedup.Outcome]bool{dedup.Unstarted: false, dedup.Failed: false,
		dedup.Unknown: true, dedup.Undone: false, dedup.Undone + 1: false} {
		r := left(other)
		r.Claim(mine, lease, &dedup.Request{}, now)
		r.Release(&dedup.Release{Claim: dedup.Claim{Token: mine}, Outcome: outcome}, now)
		served, changed := r.Complete(&dedup.Completion{Claim: dedup.Claim{Token: mine}}, now)
		assert.Equal(t, []bool{late, late}, []bool{served, changed}, "outcome %d", outcome)
	}
}

// TestRelease_UndoneInDoubt: an earlier run may have had its effect, with the first payload (H-11).
func TestRelease_UndoneInDoubt(t *testing.T) {
	sum := dedup.Checksum([]byte("1"))
	r := claimedWith(sum)
	r.Doubt = true
	served, changed := r.Release(
		&dedup.Release{Claim: dedup.Claim{Token: mine}, Outcome: dedup.Undone}, now)
	assert.True(t, served && changed)
	assert.Equal(t, sum, r.Fingerprint)
}

func TestReopenAndDiscard(t *testing.T) {
	r := Record{State: Done}
	assert.False(t, r.Reopen(now), "only a dead record is reopened")
	r = Record{State: Dead, Reason: "why", Failures: 3, Position: at(1, 4)}
	assert.True(t, r.Reopen(now))
	assert.True(t, r.Reopen(now), "a repetition")
	assert.Equal(t, []any{Open, at(2, 0), uint32(0)}, []any{r.State, r.Position, r.Failures})
	r.Discard("by hand", time.Hour, now)
	assert.Equal(t, []any{Dead, "discarded: by hand"}, []any{r.State, r.Reason})
	assert.False(t, r.HeldBy(dedup.Token{}))
}

func TestTooOld(t *testing.T) {
	old := dedup.Request{Origin: dedup.Origin{Time: now}}
	for name, c := range map[string]struct {
		change  func(*dedup.Request)
		horizon time.Time
		want    bool
	}{
		"before the horizon": {func(*dedup.Request) {}, now.Add(1), true},
		"at the horizon":     {func(*dedup.Request) {}, now, false},
		"no horizon":         {func(*dedup.Request) {}, time.Time{}, false},
		"any age":            {func(q *dedup.Request) { q.AnyAge = true }, now.Add(1), false},
		"a later attempt":    {func(q *dedup.Request) { q.Position.Retry = 1 }, now.Add(1), false},
		"no time":            {func(q *dedup.Request) { q.Origin.Time = time.UnixMilli(0) }, now, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := old
			c.change(&q)
			assert.Equal(t, c.want, TooOld(&q, c.horizon))
		})
	}
}

func TestReason(t *testing.T) {
	assert.Equal(t, "a\uFFFDb", Reason("a\x00b"))
	long := Reason(strings.Repeat("é", dedup.MaxReason))
	assert.LessOrEqual(t, len(long), dedup.MaxReason)
	assert.Equal(t, strings.Repeat("é", dedup.MaxReason/2), long)
}
