package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A plan shows its effects and changes no state. Its replay has these effects, once, and names the
// person.
func TestPlanAndReplay(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	var audit []AuditEvent
	s, letters := fullSite(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Audit = func(_ context.Context, e AuditEvent) {
			mu.Lock()
			defer mu.Unlock()
			audit = append(audit, e)
		}
	})
	id := s.planFor("0/0", "1/3")
	a := s.get("plan?id=" + id)
	require.Contains(t, a.body, "1 dead letter of 2 would be replayed")
	require.Contains(t, a.body, "it was reopened 3 times")
	require.Empty(t, letters.replayed)
	require.Empty(t, audit, "to look is no deed")

	a = s.post("replay", url.Values{"id": {id}})
	require.Contains(t, a.body, "1 of 1 replayed")
	require.Equal(t, map[deadLetterPlace]int{{fakeTopic, 0, 0}: 1}, letters.replayed)

	a = s.post("replay", url.Values{"id": {id}})
	require.Contains(t, a.body, "Already done")
	require.Equal(t, map[deadLetterPlace]int{{fakeTopic, 0, 0}: 1}, letters.replayed)
	require.Contains(t, s.get("plan?id="+s.planFor("0/0")).body, "already done")

	require.Len(t, audit, 3)
	for i, want := range []string{outcomeBegun, outcomeReplayed, outcomeDone} {
		require.Equal(t, want, audit[i].Outcome)
		require.Equal(t, loopbackUser, audit[i].Who)
		require.Equal(t, id, audit[i].Plan)
		require.Equal(t, "billing", audit[i].Group)
	}
	require.Equal(t, "order-4700", audit[1].EventID)
	require.Equal(t, "orders.billing.dlq/0/0", audit[1].DeadLetter)
	require.Equal(t, 3, strings.Count(log.String(), "user=loopback"))
	require.Contains(t, log.String(), "event_id=order-4700")
	require.NotContains(t, log.String(), "A-4711", "a payload in the log")
}

func TestReadOnly(t *testing.T) {
	s, letters := fullSite(t, func(c *Config) { c.AllowReplay = false })
	id := s.planFor("0/0")
	body := s.get("plan?id=" + id).body
	require.Contains(t, body, "read-only")
	require.NotContains(t, body, `action="./replay"`)
	require.Equal(t, http.StatusForbidden, s.post("replay", url.Values{"id": {id}}).status)
	require.Empty(t, letters.replayed)
}

// However many confirm at once, it is done once.
func TestReplay_Once(t *testing.T) {
	s, letters := fullSite(t)
	id := s.planFor("0/0", "1/1")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { s.post("replay", url.Values{"id": {id}}) })
	}
	wg.Wait()
	require.Equal(t, map[deadLetterPlace]int{{fakeTopic, 0, 0}: 1, {fakeTopic, 1, 1}: 1}, letters.replayed)
}

// Only the person who made a plan can carry it out.
func TestPlan_OfOnePerson(t *testing.T) {
	s, letters := fullSite(t, func(c *Config) {
		c.Auth = func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
	})
	s.header.Set("X-User", "ada")
	id := s.planFor("0/0")
	s.header.Set("X-User", "bob")
	require.Equal(t, http.StatusForbidden, s.get("plan?id="+id).status)
	require.Equal(t, http.StatusForbidden, s.post("replay", url.Values{"id": {id}}).status)
	require.Empty(t, letters.replayed)
}

// Dead letters that have changed since the plan are left alone.
func TestReplay_ExactlyWhatWasPlanned(t *testing.T) {
	s, letters := fullSite(t)
	id := s.planFor("0/0", "1/1", "0/2", "0/4")
	letters.mu.Lock()
	letters.replayed[deadLetterPlace{fakeTopic, 0, 0}] = 1 // by another person
	letters.all[1].ID = "another"                          // the topic was made anew
	letters.all[4].Partition = 9                           // it was purged
	letters.mu.Unlock()
	a := s.post("replay", url.Values{"id": {id}})
	require.Contains(t, a.body, "1 of 4 replayed")
	require.Contains(t, a.body, "changed since the plan")
	require.Contains(t, a.body, "it is not in its topic any longer")
	require.Equal(t, map[deadLetterPlace]int{{fakeTopic, 0, 0}: 1, {fakeTopic, 0, 2}: 1}, letters.replayed)
}

// A replay does what the plan has shown, or leaves the dead letter alone: the store may have another
// verdict since, with another step.
func TestReplay_SameVerdict(t *testing.T) {
	s, letters := fullSite(t)
	id := s.planFor("0/0", "1/1", "0/2")
	letters.mu.Lock()
	letters.judged = map[deadLetterPlace][2]string{
		{fakeTopic, 0, 0}: {"never seen", "publish"},          // another person has released it
		{fakeTopic, 1, 1}: {"reopened", "reopen and publish"}, // and replayed this one
	}
	letters.mu.Unlock()
	a := s.post("replay", url.Values{"id": {id}})
	require.Contains(t, a.body, "1 of 3 replayed")
	require.Contains(t, a.body, "changed since the plan: never seen")
	require.Contains(t, a.body, "changed since the plan: reopened")
	require.Equal(t, map[deadLetterPlace]int{{fakeTopic, 0, 2}: 1}, letters.replayed)
}

// Each part of what a plan shows counts.
func TestDeadLetterRow_SameAs(t *testing.T) {
	at := time.Now()
	planned := deadLetterRow{
		ID: "e", Type: "paid", Tenant: "t", Failed: at, Verdict: "dead", Action: "reopen and publish",
		Note: "a note",
	}
	same := planned
	same.Failed, same.Note = at.UTC(), "another note"
	require.True(t, same.sameAs(&planned))
	for name, change := range map[string]func(*deadLetterRow){
		"id":      func(r *deadLetterRow) { r.ID = "other" },
		"type":    func(r *deadLetterRow) { r.Type = "other" },
		"tenant":  func(r *deadLetterRow) { r.Tenant = "other" },
		"failed":  func(r *deadLetterRow) { r.Failed = at.Add(time.Second) },
		"verdict": func(r *deadLetterRow) { r.Verdict = "reopened" },
		"action":  func(r *deadLetterRow) { r.Action = "publish" },
	} {
		changed := planned
		change(&changed)
		require.False(t, changed.sameAs(&planned), name)
	}
}

func TestReplay_Fails(t *testing.T) {
	s, letters := fullSite(t)
	id := s.planFor("0/0")
	letters.mu.Lock()
	letters.err = errors.New("broker away: password=hunter2")
	letters.mu.Unlock()
	a := s.post("replay", url.Values{"id": {id}})
	require.Contains(t, a.body, "then failed")
	require.Contains(t, a.body, "broker away")
	require.NotContains(t, a.body, "hunter2")
}

// A replay goes on when the person who began it has gone. It is shown as it goes, and ends with the
// page.
func TestReplay_UnderWayAndClosed(t *testing.T) {
	s, letters := fullSite(t)
	letters.hold = make(chan struct{})
	id, other := s.planFor("0/0"), s.planFor("1/1")
	ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.at+"replay", strings.NewReader(url.Values{"id": {id}}.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, err = s.server.Client().Do(req)
	require.Error(t, err)
	a := s.get("plan?id=" + id)
	require.Contains(t, a.body, "Under way: 0 of 1")
	require.Contains(t, a.body, `http-equiv="refresh"`, "it moves without JavaScript")
	require.Contains(t, s.post("replay", url.Values{"id": {id}}).body, "under way already")
	require.Equal(t, http.StatusConflict, s.post("replay", url.Values{"id": {other}}).status, "one at a time")
	require.NoError(t, s.h.Close(t.Context()))
	p, err := s.h.plans.find(time.Now(), id, loopbackUser)
	require.NoError(t, err)
	require.Equal(t, outcomeInterrupted, p.Outcome)
}

func TestPlan_Bounds(t *testing.T) {
	s, _ := fullSite(t)
	require.Equal(t, http.StatusBadRequest, s.post("plan", url.Values{"topic": {fakeTopic}}).status)
	require.Equal(t, http.StatusBadRequest, s.post("plan", url.Values{"topic": {fakeTopic}, "at": {"x"}}).status)
	require.Equal(t, http.StatusNotFound, s.post("plan", url.Values{"topic": {"orders"}, "at": {"0/0"}}).status)
	var many []string
	for i := range maxPlanned + 1 {
		many = append(many, fmt.Sprintf("0/%d", i))
	}
	require.Equal(t, http.StatusBadRequest, s.post("plan", url.Values{"topic": {fakeTopic}, "at": many}).status)
	require.Equal(t, http.StatusBadRequest, s.post("plan", url.Values{"topic": {strings.Repeat("x", maxForm)}}).status)
	require.Contains(t, s.post("plan", url.Values{"topic": {fakeTopic}, "all": {"1"}, "listed": {"0/0", "1/1", "1/1"}}).body, "2 dead letters of 2")
}

func TestPlans_ExpiryAndRoom(t *testing.T) {
	p, now := newPlans(), time.Unix(1000, 0)
	made := &replayPlan{Who: "ada"}
	require.NoError(t, p.add(now, made))
	_, err := p.find(now.Add(planLife-1), made.ID, "ada")
	require.NoError(t, err)
	_, err = p.find(now.Add(planLife), made.ID, "ada")
	require.ErrorIs(t, err, errNoPlan)
	_, err = p.begin(now.Add(planLife), made.ID, "ada")
	require.ErrorIs(t, err, errNoPlan)

	running := &replayPlan{Who: "ada"}
	require.NoError(t, p.add(now, running))
	_, err = p.begin(now, running.ID, "ada")
	require.NoError(t, err)
	var last *replayPlan
	for i := range 10 * maxPlans {
		last = &replayPlan{Who: "bob"}
		require.NoError(t, p.add(now.Add(time.Duration(i)), last))
		require.LessOrEqual(t, len(p.all), maxPlans)
		require.Len(t, last.ID, 26)
	}
	_, err = p.find(now.Add(time.Hour), running.ID, "ada")
	require.NoError(t, err, "what runs is not forgotten")
	p.end(now.Add(time.Hour), running.ID, outcomeDone, "")
	_, err = p.begin(now.Add(time.Hour), running.ID, "ada")
	require.ErrorIs(t, err, errPlanDone)
	_, err = p.find(now.Add(time.Hour+planLife), running.ID, "ada")
	require.ErrorIs(t, err, errNoPlan)
}
