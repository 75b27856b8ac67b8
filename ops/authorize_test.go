package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// auditLog collects audit events.
type auditLog struct {
	mu     sync.Mutex
	events []AuditEvent
}

func (l *auditLog) add(_ context.Context, e AuditEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *auditLog) take() []AuditEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.events
	l.events = nil
	return events
}

const fakeDeadLetter = "dead-letter?topic=orders.billing.dlq&partition=0&offset=0"

// A proxy that forbids some paths of the page must not be led round by others that end the same
// way.
func TestPaths_Exact(t *testing.T) {
	s, letters := fullSite(t)
	id := s.planFor("0/0")
	for _, name := range []string{"", "dead-letters", fakeDeadLetter, "plan?id=" + id} {
		require.Equal(t, http.StatusOK, s.get(name).status, name)
		for _, before := range []string{"x/", "dead-letters/", "dead-letter%2F", "x%2F", ".%2F", "%2F", "%5C", ";x/"} {
			require.Equal(t, http.StatusNotFound, s.get(before+name).status, before+name)
		}
		if name != "" { // the same in other words
			coded := fmt.Sprintf("%%%X%s", name[0], name[1:])
			require.Equal(t, http.StatusNotFound, s.get(coded).status, coded)
		}
	}
	for _, name := range []string{"x/replay", "%72eplay", "repl%61y"} {
		require.Equal(t, http.StatusNotFound, s.post(name, url.Values{"id": {id}}).status)
	}
	require.Empty(t, letters.replayed)
	for _, prefix := range []string{"admin/", "/admin", "/a//b/", "/a/../b/", "/./"} {
		_, err := NewHandler(Config{Loopback: true, Prefix: prefix})
		require.ErrorContains(t, err, "Config.Prefix", prefix)
	}
}

// Pictures, scripts and frames of other sites are refused, so they take no place of a search. Links
// are served.
func TestCrossSite_SubResources_G10(t *testing.T) {
	var audit auditLog
	s, _ := fullSite(t, func(c *Config) { c.Audit = audit.add })
	for _, site := range []string{"cross-site", "same-site"} {
		for mode, dest := range map[string]string{"no-cors": "image", "cors": "empty", "navigate": "iframe", "": ""} {
			s.header = http.Header{"Sec-Fetch-Site": {site}, "Sec-Fetch-Mode": {mode}, "Sec-Fetch-Dest": {dest}}
			require.Equal(t, http.StatusForbidden, s.get("dead-letters?id=none").status, "%s %s", mode, dest)
		}
		s.header = http.Header{"Sec-Fetch-Site": {site}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}
		require.Equal(t, http.StatusOK, s.get("event?id=order-4711").status)
	}
	for _, e := range audit.take() {
		require.Equal(t, []string{outcomeRefused, "/admin/idem/dead-letters"}, []string{e.Outcome, e.Path})
	}
	for _, site := range []string{"same-origin", "none", ""} {
		s.header = http.Header{"Sec-Fetch-Site": {site}, "Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Dest": {"empty"}}
		require.Equal(t, http.StatusOK, s.get("dead-letters").status)
	}
}

// Other people find a place for a search, for any number of searches of one person.
func TestPlaces_OfOnePerson(t *testing.T) {
	p := newPlaces()
	page := context.Background()
	var leave []func()
	for range maxScansOf {
		out, err := p.enter(t.Context(), page, "eve", time.Minute)
		require.NoError(t, err)
		leave = append(leave, out)
	}
	waiting, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for range maxAskingOf - maxScansOf {
		done.Go(func() {
			_, err := p.enter(waiting, page, "eve", time.Minute)
			require.ErrorIs(t, err, context.Canceled)
		})
	}
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.of["eve"].asking == maxAskingOf
	}, 10*time.Second, time.Millisecond)
	_, err := p.enter(t.Context(), page, "eve", time.Minute)
	require.ErrorIs(t, err, errBusy, "not even a place to wait")
	out, err := p.enter(t.Context(), page, "ada", time.Second)
	require.NoError(t, err)
	out()
	cancel()
	done.Wait()
	for _, out := range leave {
		out()
	}
	require.Empty(t, p.of)
	require.Empty(t, p.free)
}

// The plans of one person push out no plan of another.
func TestPlans_OfOnePerson(t *testing.T) {
	p, now := newPlans(), time.Now()
	ada := &replayPlan{Who: "ada"}
	require.NoError(t, p.add(now, ada))
	var last *replayPlan
	for i := range 10 * maxPlansOf {
		last = &replayPlan{Who: "eve"}
		require.NoError(t, p.add(now.Add(time.Duration(i)), last))
	}
	require.Len(t, p.all, 1+maxPlansOf)
	_, err := p.find(now, ada.ID, "ada")
	require.NoError(t, err)
	_, err = p.find(now, last.ID, "eve")
	require.NoError(t, err)
	for i := 0; len(p.all) < maxPlans; i++ {
		require.NoError(t, p.add(now, &replayPlan{Who: fmt.Sprint("p", i)}))
	}
	require.ErrorIs(t, p.add(now, &replayPlan{Who: "one more"}), errTooMany, "memory is bounded")
	_, err = p.find(now, ada.ID, "ada")
	require.NoError(t, err)
}

// The hook gets the action and its object. A refused action is logged and audited.
func TestAuthorize(t *testing.T) {
	var (
		audit  auditLog
		log    bytes.Buffer
		mu     sync.Mutex
		seen   []Action
		forbid ActionKind
	)
	s, letters := fullSite(t, func(c *Config) {
		c.Audit, c.Logger = audit.add, slog.New(slog.NewTextHandler(&log, nil))
		c.Authorize = func(_ *http.Request, who string, a Action) error {
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, loopbackUser, who)
			if !a.Offer {
				seen = append(seen, a)
			}
			if a.Kind == forbid {
				return errors.New("not in the group of operators")
			}
			return nil
		}
	})
	id := s.planFor("0/0")
	s.get(fakeDeadLetter)
	s.get("event?id=order-4711&type=order.created")
	require.Equal(t, []Action{
		{Kind: ActionPlan, Page: "plan", Topic: fakeTopic, DeadLetters: []string{"orders.billing.dlq/0/0"}},
		{Kind: ActionView, Page: "plan", Plan: id},
		{Kind: ActionView, Page: "dead-letter", Topic: fakeTopic, DeadLetters: []string{"orders.billing.dlq/0/0"}},
		{Kind: ActionPayload, Page: "dead-letter", Topic: fakeTopic, DeadLetters: []string{"orders.billing.dlq/0/0"}},
		{Kind: ActionView, Page: "event", EventID: "order-4711", EventType: "order.created"},
	}, seen)
	require.Len(t, audit.take(), 1, "the payload was read")

	forbid = ActionReplay
	require.Equal(t, http.StatusForbidden, s.post("replay", url.Values{"id": {id}}).status)
	require.Equal(t, Action{Kind: ActionReplay, Page: "replay", Plan: id, Topic: fakeTopic, DeadLetters: []string{"orders.billing.dlq/0/0"}}, seen[len(seen)-1])
	require.Empty(t, letters.replayed)
	forbid = ActionPlan
	require.Equal(t, http.StatusForbidden, s.post("plan", url.Values{"topic": {fakeTopic}, "at": {"0/0"}}).status)
	forbid = ActionView
	for _, name := range []string{"", "dead-letters", fakeDeadLetter, "event?id=order-4711", "plan?id=" + id} {
		require.Equal(t, http.StatusForbidden, s.get(name).status, name)
	}
	for name := range assets() {
		require.Equal(t, http.StatusOK, s.get(name).status, "the page of the refusal needs it")
	}
	events := audit.take()
	require.Len(t, events, 7)
	for i, e := range events {
		require.Equal(t, outcomeRefused, e.Outcome)
		require.Equal(t, loopbackUser, e.Who)
		require.Equal(t, "not in the group of operators", e.Note)
		require.Equal(t, []string{"replay", "plan", "view", "view", "view", "view", "view"}[i], e.Action)
	}
	require.Equal(t, []string{id, "orders.billing.dlq/0/0", "/admin/idem/replay"}, []string{events[0].Plan, events[0].DeadLetter, events[0].Path})
	require.Equal(t, 7, strings.Count(log.String(), "level=WARN"))

	forbid = ActionPayload
	a := s.get(fakeDeadLetter)
	require.Equal(t, http.StatusOK, a.status)
	require.NotContains(t, a.body, "A-4711")
	require.Contains(t, a.body, "you may not see them")
	require.Len(t, audit.take(), 1)
}

// A person sees the buttons of those actions only that Authorize allows. A hidden button is no
// refusal: no line is written.
func TestButtons_OnlyForThoseWhoMay(t *testing.T) {
	var (
		audit   auditLog
		log     bytes.Buffer
		mu      sync.Mutex
		forbid  []ActionKind
		offered []Action
	)
	s, letters := fullSite(t, func(c *Config) {
		c.Audit, c.Logger = audit.add, slog.New(slog.NewTextHandler(&log, nil))
		c.Authorize = func(_ *http.Request, _ string, a Action) error {
			mu.Lock()
			defer mu.Unlock()
			if a.Offer {
				offered = append(offered, a)
			}
			if slices.Contains(forbid, a.Kind) {
				return errors.New("not an operator")
			}
			return nil
		}
	})
	const replayButton, planButton, planForm = `action="./replay"`, "Plan a replay", `action="./plan"`
	id := s.planFor("0/0")
	plan := s.get("plan?id=" + id).body
	require.Contains(t, plan, replayButton)
	require.Contains(t, plan, "replay allowed")
	require.Contains(t, offered, Action{
		Kind: ActionReplay, Page: "replay", Plan: id, Topic: fakeTopic, DeadLetters: []string{"orders.billing.dlq/0/0"}, Offer: true,
	})
	require.Contains(t, s.get("dead-letters").body, planForm)
	require.Contains(t, s.get(fakeDeadLetter).body, planButton)

	forbid = []ActionKind{ActionReplay}
	plan = s.get("plan?id=" + id).body
	require.NotContains(t, plan, replayButton)
	require.Contains(t, plan, "not carry it out")
	require.NotContains(t, plan, "replay allowed")
	require.Contains(t, s.get("dead-letters").body, planForm)

	forbid = []ActionKind{ActionReplay, ActionPlan}
	for _, name := range []string{"dead-letters", fakeDeadLetter} {
		body := s.get(name).body
		require.NotContains(t, body, planForm, name)
		require.NotContains(t, body, `type="checkbox"`, name)
		require.Contains(t, body, "order-4700", name)
	}
	require.NotContains(t, log.String(), "level=WARN")
	for _, e := range audit.take() {
		require.NotEqual(t, outcomeRefused, e.Outcome)
	}
	require.Equal(t, http.StatusForbidden, s.post("plan", url.Values{"topic": {fakeTopic}, "at": {"0/0"}}).status)
	require.Equal(t, http.StatusForbidden, s.post("replay", url.Values{"id": {id}}).status, "the button decides nothing")
	require.Empty(t, letters.replayed)
}

// The reading of a payload, and each refusal, is audited.
func TestAudit_ReadsAndRefusals(t *testing.T) {
	var audit auditLog
	var log bytes.Buffer
	s, _ := fullSite(t, func(c *Config) {
		c.Loopback, c.Audit, c.Logger = false, audit.add, slog.New(slog.NewTextHandler(&log, nil))
		c.Auth = func(r *http.Request) (string, error) {
			if who := r.Header.Get("X-User"); who != "" {
				return who, nil
			}
			return "", errors.New("secret reason")
		}
	})
	s.header.Set("X-User", "ada")
	require.Contains(t, s.get(fakeDeadLetter).body, "A-4711")
	s.do(http.MethodHead, fakeDeadLetter, nil)
	read := audit.take()
	require.Len(t, read, 1, "HEAD shows nothing")
	require.Equal(t, []string{"ada", "payload", "orders.billing.dlq/0/0", "order-4700", outcomeRead},
		[]string{read[0].Who, read[0].Action, read[0].DeadLetter, read[0].EventID, read[0].Outcome})
	require.NotContains(t, log.String(), "A-4711", "a payload in the log")

	id := s.planFor("0/0")
	s.header.Set("X-User", "bob")
	s.get("plan?id=" + id)
	s.post("replay", url.Values{"id": {id}})
	s.header.Del("X-User")
	s.get("dead-letters?id=secret")
	got := audit.take()
	require.Len(t, got, 3)
	for i, want := range [][]string{
		{"bob", "view", id, "/admin/idem/plan"}, {"bob", "replay", id, "/admin/idem/replay"}, {"", "enter", "", "/admin/idem/dead-letters"},
	} {
		require.Equal(t, outcomeRefused, got[i].Outcome)
		require.Equal(t, want, []string{got[i].Who, got[i].Action, got[i].Plan, got[i].Path})
	}
	require.NotContains(t, log.String(), "secret")

	for range 3 * maxRefusals {
		s.get("")
	}
	n := len(audit.take())
	require.LessOrEqual(t, n, maxRefusals, "a stranger fills the log")
	s.header = http.Header{"X-User": {"bob"}, "Sec-Fetch-Site": {"cross-site"}}
	s.get("")
	require.Empty(t, audit.take(), "another site fills the log")
	s.header = http.Header{"X-User": {"bob"}}
	s.get("plan?id=" + id)
	require.Len(t, audit.take(), 1, "a stranger hides what bob was refused")
	s.header = http.Header{}
	s.h.now = func() time.Time { return time.Now().Add(time.Minute) }
	s.get("")
	last := audit.take()
	require.Len(t, last, 1)
	require.Contains(t, last[0].Note, fmt.Sprint(3*maxRefusals+1-n, " refusals"))
}

func TestHidePayloads_IsNotAudited(t *testing.T) {
	var audit auditLog
	s, _ := fullSite(t, func(c *Config) { c.HidePayloads, c.Audit = true, audit.add })
	require.NotContains(t, s.get(fakeDeadLetter).body, "A-4711")
	require.Empty(t, audit.take())
}
