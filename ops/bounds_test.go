package ops

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/deadletters"
)

// P-23: no part of an identity is trimmed. The link of an event with blanks at the ends of its ID
// does not answer for another event.
func TestEventLink_Blanks_P23(t *testing.T) {
	src, _ := full(time.Now())
	handled := func(id string) eventRecord {
		return eventRecord{Store: "memory", Record: dedup.Record{
			Key: dedup.Key{Scope: "billing", Type: "t", ID: id}, State: dedup.Finished, Changed: time.Now().Add(-time.Hour),
		}}
	}
	src.events = &fakeEvents{answer: eventAnswer{Records: []eventRecord{handled("order-7")}}}
	s := serve(t, quietConfig(), src)
	require.Contains(t, s.get("event?"+url.Values{"id": {" order-7\n"}}.Encode()).body, "Yes, it was handled", "somebody has pasted it")
	require.Contains(t, s.get(eventLink(dedup.Key{Type: "t", ID: "order-7"})).body, "Yes, it was handled")
	require.Contains(t, s.get(eventLink(dedup.Key{Type: "t", ID: " order-7 "})).body, "Not known here")
}

// A hook that panics ends neither the program nor the replay.
func TestReplay_AuditPanics(t *testing.T) {
	s, letters := fullSite(t, func(c *Config) { c.Audit = func(context.Context, AuditEvent) { panic("disk full") } })
	id := s.planFor("0/0", "1/1")
	require.Contains(t, s.post("replay", url.Values{"id": {id}}).body, "2 of 2 replayed")
	require.Len(t, letters.replayed, 2)
}

// A source with costly answers is asked seldom, but an outage is not remembered for longer than
// needed.
func TestCells_Sparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, _ := full(time.Now())
		deferred := &slowDeferred{takes: time.Second}
		src.deferred = deferred
		h, err := newHandler(quietConfig().withDefaults(), src)
		require.NoError(t, err)
		require.True(t, h.cells.deferred.get(t.Context()).OK())
		time.Sleep(50 * time.Second)
		require.True(t, h.cells.deferred.get(t.Context()).OK())
		require.Equal(t, 1, deferred.calls, "a second of work is good for a minute")

		time.Sleep(time.Minute)
		deferred.err = errors.New("away")
		require.False(t, h.cells.deferred.get(t.Context()).OK())
		deferred.err = nil
		time.Sleep(5 * time.Second)
		require.False(t, h.cells.deferred.get(t.Context()).OK())
		time.Sleep(2 * time.Second)
		require.True(t, h.cells.deferred.get(t.Context()).OK(), "an outage is over")
		require.NoError(t, h.Close(t.Context()))
	})
}

type slowDeferred struct {
	takes time.Duration
	err   error
	calls int
}

func (s *slowDeferred) list(context.Context) (deferredState, error) {
	time.Sleep(s.takes)
	s.calls++
	return deferredState{}, s.err
}

// A record of a megabyte may have so many headers that the page would be tens of megabytes, and one
// may have a name as long as that.
func TestDeadLetter_ManyHeaders(t *testing.T) {
	s, letters := fullSite(t)
	letters.all[0].Headers = append(letters.all[0].Headers, idem.Header{Key: strings.Repeat("n", 1<<20), Value: []byte(strings.Repeat("v", 1<<20))})
	for range 50_000 {
		letters.all[0].Headers = append(letters.all[0].Headers, idem.Header{Key: "h", Value: []byte{1}})
	}
	a := s.get("dead-letter?topic=orders.billing.dlq&partition=0&offset=0")
	require.Equal(t, 200, a.status)
	require.Less(t, len(a.body), 200<<10)
	require.Contains(t, a.body, "more are not shown")
}

// A client with the right to write to the topic may write any bytes into the headers that Idem
// reads.
func TestRowOf_Bounds(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	row := rowOf(&deadletters.Row{Record: "0/1", Class: idem.Class(long), Type: long, ID: long, Tenant: long, Scope: long, Error: long, Problem: long, Note: long})
	require.Less(t, len(fmt.Sprintf("%#v", row)), 16<<10)
}

// A replay that has left dead letters alone does not look like one that has not.
func TestReplay_LeftAlone(t *testing.T) {
	s, letters := fullSite(t)
	id := s.planFor("0/0")
	letters.mu.Lock()
	letters.replayed[deadLetterPlace{fakeTopic, 0, 0}] = 1 // by the command, meanwhile
	letters.mu.Unlock()
	a := s.post("replay", url.Values{"id": {id}})
	require.Contains(t, a.body, "0 of 1 replayed")
	require.Contains(t, a.body, "were left alone")
	require.Contains(t, a.body, `class="card answer warn"`)
	require.NotContains(t, a.body, "copies are on their way")
	require.Contains(t, s.post("replay", url.Values{"id": {s.planFor("1/1")}}).body, `class="card answer ok"`)
}

// A plan that is not known may have been carried out before it was forgotten. The page must not
// deny a change.
func TestPlan_Forgotten(t *testing.T) {
	s, letters := fullSite(t)
	var late atomic.Int64
	s.h.now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	id := s.planFor("0/0")
	s.post("replay", url.Values{"id": {id}})
	late.Store(int64(planLife + time.Second))
	for _, a := range []answerOf{s.get("plan?id=" + id), s.post("replay", url.Values{"id": {id}})} {
		require.Equal(t, 404, a.status)
		require.Contains(t, a.body, "No dead letter was replayed now")
		require.NotContains(t, a.body, "Nothing was changed")
	}
	require.Len(t, letters.replayed, 1)
}
