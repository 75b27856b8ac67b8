package ops

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// The timeline of an event has its own dead letters, and not those of the same event in another
// scope.
func TestEventPage_DeadLettersOfItsScope(t *testing.T) {
	now := time.Now()
	record := func(scope string) eventRecord {
		return eventRecord{Store: "memory", Record: dedup.Record{
			Key: dedup.Key{Scope: scope, Type: "paid", ID: "1"}, State: dedup.GivenUp, Reason: "no", Changed: now,
		}}
	}
	letter := func(offset int64, scope, typ, tenant string) deadLetterRow {
		return deadLetterRow{
			deadLetterPlace: deadLetterPlace{fakeTopic, 0, offset}, Failed: now,
			Scope: scope, Type: typ, Tenant: tenant, ID: "1",
		}
	}
	e := &eventView{
		Found: part[eventAnswer]{Value: eventAnswer{Records: []eventRecord{record("billing"), record("refunds")}}},
		DeadLetters: part[eventDeadLetters]{Value: eventDeadLetters{DeadLetters: []deadLetterRow{
			letter(0, "billing", "sold", ""), letter(1, "billing", "paid", "acme"),
			letter(2, "refunds", "paid", ""), letter(3, "billing", "paid", ""),
			letter(4, "", "paid", ""), // without identity: it may be of each scope
		}}},
	}
	e.answer(now)
	require.Len(t, e.Answers, 2)
	for i, want := range []struct {
		scope   string
		letters []int64
	}{{"billing", []int64{3, 4}}, {"refunds", []int64{2, 4}}} {
		a := e.Answers[i]
		require.Equal(t, want.scope, a.Key.Scope)
		var links, wanted []string
		for _, s := range a.Steps {
			if strings.HasPrefix(s.Title, "Dead letter") {
				links = append(links, s.Link)
			}
		}
		for _, offset := range want.letters {
			wanted = append(wanted, deadLetterLink(deadLetterPlace{fakeTopic, 0, offset}))
		}
		require.Equal(t, wanted, links, want.scope)
		require.Equal(t, wanted[0], a.Advice[0].Link, want.scope)
	}
}
