package deadletters

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// dead letter is a record of the dead-letter topic as group g would have written it at a time.
func deadLetter(id, class string, at time.Time) *idem.Message {
	m := &idem.Message{Topic: "orders.g.dlq", Key: []byte(id), Value: []byte(`{"event_id":"` + id + `","type":"paid"}`), Time: at}
	for _, h := range [][2]string{
		{deadletter.HeaderTopic, "orders"}, {deadletter.HeaderPartition, "0"}, {deadletter.HeaderOffset, "7"}, {deadletter.HeaderTime, at.UTC().Format(time.RFC3339)},
		{deadletter.HeaderGroup, "g"}, {deadletter.HeaderScope, "g"}, {deadletter.HeaderEventType, "paid"}, {deadletter.HeaderEventID, id},
		{deadletter.HeaderAttempts, strconv.Itoa(1)}, {deadletter.HeaderErrorClass, class},
	} {
		m.Headers = append(m.Headers, idem.Header{Key: h[0], Value: []byte(h[1])})
	}
	return m
}

// Scan stops when its function returns false or an error, and returns that error.
func TestScan(t *testing.T) {
	w := newWorld(t)
	w.fail(w.events("e", 5)...)
	n := 0
	scanned, err := Scan(t.Context(), w.client, []string{"orders.g.dlq"}, Filter{Types: []string{"paid"}}, func(l *Found) (bool, error) {
		require.Equal(t, "orders", l.DeadLetter.Message.Topic)
		n++
		return n < 3, nil
	})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 3, scanned)
	_, err = Scan(t.Context(), w.client, []string{"orders.g.dlq"}, Filter{}, func(*Found) (bool, error) { return true, errBroken })
	require.ErrorIs(t, err, errBroken)
	_, err = Scan(t.Context(), w.client, []string{"nowhere"}, Filter{}, nil)
	require.ErrorIs(t, err, sarama.ErrUnknownTopicOrPartition)
}

// A record that could not be decoded never got an identity. A search for the event must find its
// dead letter all the same, because the record names the event.
func TestFilter_WhatCouldNotBeDecoded(t *testing.T) {
	w := newWorld(t)
	header := func(m *idem.Message, name, value string) *idem.Message {
		m.Headers = append(m.Headers, idem.Header{Key: name, Value: []byte(value)})
		return m
	}
	broken := header(header(w.event("other", ""), "event-id", "e1"), "event-type", "paid")
	broken.Value = []byte(`{"amount":`)
	w.handle(func(string) error { return nil }, broken)
	require.Equal(t, "e1", headerText(w.deadLetters()[0], deadletter.HeaderEventID))
	unknown := header(w.event("other", ""), "event-id", "e3")
	unknown.Value = []byte("no JSON")
	w.handle(func(string) error { return nil }, unknown)
	require.Empty(t, headerText(w.deadLetters()[1], deadletter.HeaderScope), "it has no type, and so no key")
	count := func(f Filter) (n int) {
		_, err := Scan(t.Context(), w.client, []string{"orders.g.dlq"}, f, func(*Found) (bool, error) { n++; return true, nil })
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 1, count(Filter{ID: "e1", Scope: "g"}))
	require.Equal(t, 1, count(Filter{ID: "e1", Types: []string{"paid"}}))
	require.Zero(t, count(Filter{ID: "e1", Types: []string{"sold"}}))
	require.Zero(t, count(Filter{ID: "e2"}))
	require.Equal(t, 1, count(Filter{ID: "e3"}))
	require.Zero(t, count(Filter{ID: "e3", Types: []string{"paid"}}))

	typed := header(w.event("other", ""), "event-type", "paid")
	typed.Value = []byte("no JSON")
	w.handle(func(string) error { return nil }, typed)
	require.Equal(t, 2, count(Filter{Types: []string{"paid"}}))
	require.Zero(t, count(Filter{Types: []string{"paid"}, ID: "e4"}))
	require.Equal(t, 1, count(Filter{Types: []string{"paid"}, Scope: "g"}), "without identity it is of no scope")
	named := make(map[string]Row)
	_, err := Scan(t.Context(), w.client, []string{"orders.g.dlq"}, Filter{}, func(l *Found) (bool, error) {
		row := l.Row()
		named[row.Type+"/"+row.ID] = row
		return true, nil
	})
	require.NoError(t, err)
	require.Len(t, named, 3)
	require.Equal(t, "g", named["paid/e1"].Scope)
	require.Equal(t, idem.ClassNotJSON, named["/e3"].Class)
	require.Empty(t, named["/e3"].Scope)
	require.Equal(t, idem.ClassNotJSON, named["paid/"].Class)
}

// The name of a dead-letter topic can be read in two ways where the names of topics and groups have
// dots. No search shows the dead letters of another group for that.
func TestTopicsOf_NamesWithDots(t *testing.T) {
	all := []string{"orders", "orders.billing.dlq", "orders.eu.billing.dlq", "gone.billing.dlq", "sold.eu", "sold.eu.billing.dlq", "sold", "x"}
	require.Equal(t, []string{"orders.billing.dlq", "gone.billing.dlq", "sold.eu.billing.dlq"}, topicsOf(all, "billing"))
	require.Equal(t, []string{"orders.eu.billing.dlq", "sold.eu.billing.dlq"}, topicsOf(all, "eu.billing"), "both topics of the last exist")
}

// Errors of their own report a missing topic or record, and a dead letter is found by its place.
func TestOpenAndGet(t *testing.T) {
	w := newWorld(t)
	_, err := Open(Config{Client: w.client, Topic: "nowhere"})
	require.ErrorIs(t, err, ErrNoTopic)
	_, err = Open(Config{Client: w.client, Topic: "orders.g.dlq", Stores: []NamedStore{{Name: "bare", Store: struct{ dedup.Store }{w.store}}}})
	require.ErrorIs(t, err, ErrNoOperator)
	topics, err := TopicsOf(w.client, "g")
	require.NoError(t, err)
	require.Equal(t, []string{"orders.g.dlq"}, topics)

	w.fail(w.event("a", ""), w.event("b", ""))
	q := w.open()
	require.EqualValues(t, 2, q.Size())
	for _, m := range w.deadLetters() {
		l, err := q.Get(t.Context(), Place{m.Partition, m.Offset})
		require.NoError(t, err)
		d := l.Detail(true)
		require.Equal(t, headerText(m, deadletter.HeaderEventID), d.ID)
		require.Equal(t, string(m.Value), d.Payload.Text)
		require.Nil(t, l.Detail(false).Payload)
	}
	_, err = q.Get(t.Context(), Place{0, 99})
	require.ErrorIs(t, err, ErrNoRecord)
	p, err := ParsePlace("1/17")
	require.NoError(t, err)
	require.Equal(t, Place{1, 17}, p)
	for _, text := range []string{"", "1", "1/", "/1", "-1/0", "0/-1", "a/b", "4294967296/0", "0/1/2"} {
		_, err := ParsePlace(text)
		require.ErrorIs(t, err, ErrPlace, text)
	}
}

// The first page of a long topic is the newest dead letters of all partitions, and does not read
// the whole.
func TestNewest(t *testing.T) {
	w := newWorld(t)
	const n = 2500
	begin := time.Now().Add(-24 * time.Hour).Truncate(time.Second)
	var all []*idem.Message
	var ids []string // the newest first
	for i := range n {
		class := "failed"
		if i%100 == 0 {
			class = "permanent"
		}
		all = append(all, deadLetter(fmt.Sprint("e", i), class, begin.Add(time.Duration(i)*time.Second)))
		ids = append(ids, fmt.Sprint("e", i))
	}
	for part := range slices.Chunk(all, 100) {
		require.NoError(t, w.producer.Produce(t.Context(), part...))
	}
	slices.Reverse(ids)
	q := w.open()
	newest := func(f Filter, limit int) (got []string, page Page) {
		page, err := q.Newest(t.Context(), f, limit)
		require.NoError(t, err)
		for _, r := range page.Rows {
			got = append(got, r.ID)
		}
		return got, page
	}
	got, page := newest(Filter{}, 10)
	require.Equal(t, ids[:10], got)
	require.True(t, page.More)
	require.Less(t, page.Scanned, n/2)

	got, page = newest(Filter{}, 3*n)
	require.Equal(t, ids, got)
	require.False(t, page.More)
	require.Equal(t, n, page.Scanned)

	got, page = newest(Filter{Classes: []string{"permanent"}}, 3)
	require.Equal(t, []string{"e2400", "e2300", "e2200"}, got)
	require.True(t, page.More)
	got, page = newest(Filter{Classes: []string{"permanent"}}, 25)
	require.Len(t, got, 25)
	require.Equal(t, "e0", got[24])
	got, _ = newest(Filter{ID: "e7"}, 0)
	require.Equal(t, []string{"e7"}, got)
	got, _ = newest(Filter{Since: begin.Add(10 * time.Second), Until: begin.Add(12 * time.Second)}, 0)
	require.Equal(t, []string{"e11", "e10"}, got)
	got, page = newest(Filter{}, 0)
	require.Equal(t, ids[:DefaultPage], got)
	require.True(t, page.More)

	// After the end of the context the caller gets the dead letters found so far.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	page, err := q.Newest(ctx, Filter{}, 10)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, page.Rows)
	require.True(t, page.More)
}

// failedAt is a dead letter of a record of one time, which failed for the last time at another.
func failedAt(id string, record, failed time.Time) *idem.Message {
	m := deadLetter(id, "failed", record)
	at := failed.UTC().Format(time.RFC3339Nano)
	for _, name := range []string{deadletter.HeaderFirstFailure, deadletter.HeaderLastFailure} {
		m.Headers = append(m.Headers, idem.Header{Key: name, Value: []byte(at)})
	}
	return m
}

// A dead letter is as new as its last failure, however old its record is: a replayed event may come
// back.
func TestNewest_OfTheLastFailure(t *testing.T) {
	w := newWorld(t)
	now := time.Now().Truncate(time.Millisecond)
	yesterday := now.Add(-24 * time.Hour)
	for i := range 5 {
		at := yesterday.Add(time.Duration(i) * time.Minute)
		require.NoError(t, w.producer.Produce(t.Context(), failedAt(fmt.Sprint("e", i), at, at)))
	}
	again := failedAt("again", now.Add(-7*24*time.Hour), now)
	require.NoError(t, w.producer.Produce(t.Context(), again))
	page, err := w.open().Newest(t.Context(), Filter{}, 3)
	require.NoError(t, err)
	var got []string
	for _, r := range page.Rows {
		got = append(got, r.ID)
	}
	require.Equal(t, []string{"again", "e4", "e3"}, got)
	require.True(t, page.More)
}

// Pages that follow each other have all dead letters once, though those of a partition were not
// written in the order of their failures, and though more of them failed at once than a page has.
func TestNewest_PagesHaveAll(t *testing.T) {
	const n, limit = 100, 3
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	for name, failed := range map[string]func(i int) time.Time{
		"in another order": func(i int) time.Time { return begin.Add(time.Duration(i*37%n) * time.Second) },
		"all at once":      func(int) time.Time { return begin },
		"tens at once":     func(i int) time.Time { return begin.Add(time.Duration(i/10) * time.Nanosecond) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			want := map[string]int{}
			for i := range n {
				id := fmt.Sprint("e", i)
				want[id] = 1
				require.NoError(t, w.producer.Produce(t.Context(), failedAt(id, begin, failed(i))))
			}
			q, f, got := w.open(), Filter{}, map[string]int{}
			for range n {
				page, err := q.Newest(t.Context(), f, limit)
				require.NoError(t, err)
				for _, r := range page.Rows {
					got[r.ID]++
				}
				if !page.More {
					break
				}
				f.After = page.Last()
			}
			require.Equal(t, want, got)
		})
	}
}

// A dead letter without identity may be purged when it was replayed. One with another content than
// the handled event may not.
func TestSettled(t *testing.T) {
	settled := []Verdict{SeenDone, SeenDiscarded, SeenReplayed}
	for _, v := range []Verdict{
		SeenDead, SeenReopened, SeenNever, SeenTooOld, SeenDeferred, SeenNoID, SeenDone, SeenDiscarded, SeenReplayed, SeenPending,
		SeenWaiting, SeenInFlight, SeenOther, SeenOmitted, SeenOften, SeenGroup, SeenForeign, SeenTooLarge, SeenConflict, SeenScope, SeenStray, SeenNoTopic,
	} {
		j := &Judged{Verdict: v}
		require.Equal(t, slices.Contains(settled, v), j.Settled(false), v)
	}
	require.True(t, (&Judged{Verdict: SeenConflict}).Settled(true))
}
