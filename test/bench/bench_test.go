package main

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
)

func TestCopiesAreAFifthAtRandomDistance(t *testing.T) {
	s := spec{deliveries: 20_000, partitions: 6, seed: 1}
	list, unique := s.generate()
	require.Len(t, list, s.deliveries)
	require.InDelta(t, copies, 1-float64(unique)/float64(len(list)), 0.01)

	first, distances := make(map[int]int), []int{}
	for i, d := range list {
		at, again := first[d.Seq]
		if !again {
			require.Len(t, first, d.Seq, "events are numbered in their order")
			first[d.Seq] = i
			continue
		}
		require.Equal(t, list[at], d, "a copy is what it copies")
		distances = append(distances, i-at)
	}
	slices.Sort(distances)
	require.Less(t, distances[0], 100)
	require.Greater(t, distances[len(distances)-1], s.deliveries/2)

	again, _ := s.generate()
	require.Equal(t, list, again, "equal specs are equal records")
}

func TestIDsAreOrderedByTimeOrRandom(t *testing.T) {
	for _, random := range []bool{false, true} {
		list, _ := spec{deliveries: 1000, partitions: 1, once: true, random: random}.generate()
		ids := make([]string, len(list))
		for i, d := range list {
			u, err := uuid.Parse(d.EventID)
			require.NoError(t, err)
			want := uuid.Version(7)
			if random {
				want = 4
			}
			require.Equal(t, want, u.Version())
			ids[i] = d.EventID
		}
		require.Equal(t, !random, slices.IsSorted(ids))
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(ids))), len(ids))
	}
}

func TestMeterSeesWhatIsMissingAndWhatIsDoubled(t *testing.T) {
	m := newMeter(2, 2)
	m.begin()
	m.effect(0)
	require.Error(t, m.each(1), "one is missing")
	m.effect(0)
	select {
	case <-m.done:
		require.Fail(t, "a second effect of one event stood in for another's")
	default:
	}
	m.effect(1)
	<-m.done
	require.Error(t, m.each(1), "one is doubled")
}

func TestWhatIsTooSlowIsFound(t *testing.T) {
	at := func(rate float64) []sample { return []sample{{rate: rate, all: rate}} }
	i := slices.IndexFunc(wanted, func(r ratio) bool { return r.row == "idem-ontx" })
	require.Positive(t, wanted[i].floor)
	floor := 1000 * wanted[i].floor
	fine := results{"idem-ontx": at(5000), "naive-postgres": at(1000), "slow-lanes": at(4800)}
	require.Empty(t, fine.missed())
	fine["idem-ontx"] = at(floor + 1)
	require.Empty(t, fine.missed(), "above the floor")
	fine["idem-ontx"], fine["slow-lanes"] = at(floor-1), at(2000)
	missed := fine.missed()
	require.Len(t, missed, 2)
	require.Equal(t, "idem-ontx", missed[0].row)
	require.Equal(t, "slow-lanes", missed[1].row)
}

func TestRatioIsTheMedianOfTheRounds(t *testing.T) {
	r := results{
		"a": {{all: 10}, {all: 30, round: 1}, {all: 20, round: 2}},
		"b": {{all: 10}, {all: 10, round: 1}, {all: 10, round: 2}},
	}
	v, ok := r.ratioOf("a", "b", 0)
	require.True(t, ok)
	require.InDelta(t, 2, v, 1e-9)
	_, ok = r.ratioOf("a", "c", 0)
	require.False(t, ok)
	require.False(t, math.IsNaN(v))
}

func TestWantedRowsExist(t *testing.T) {
	names := make(map[string]bool)
	for _, r := range slices.Concat(allRows(fullSizes), storeRows(fullSizes, true)) {
		require.False(t, names[r.name], "two rows are named %s", r.name)
		names[r.name] = true
	}
	for _, r := range allRows(fullSizes) {
		require.True(t, r.after == "" || names[r.after], "%s comes after %q", r.name, r.after)
	}
	for _, w := range wanted {
		require.True(t, names[w.row], w.row)
		require.True(t, w.base == "" || names[w.base], w.base)
		require.Equal(t, w.base == "", w.ideal > 0, "%s is against a row or an ideal", w.row)
	}
}

// The rows of other decoders get the order and the number that the records have, and are not among
// the core rows.
func TestDecoderRows(t *testing.T) {
	rows := make(map[string]row)
	for _, r := range allRows(fullSizes) {
		rows[r.name] = r
	}
	for _, name := range []string{"idem-onbatchtx", "idem-redis-onbatch", "idem-redis-on"} {
		for _, suffix := range []string{"-jsonv2", "-raw"} {
			r, ok := rows[name+suffix]
			require.True(t, ok, name+suffix)
			require.False(t, r.core, r.name)
			require.Len(t, r.options, 1)
			require.Equal(t, rows[name].spec, r.spec)
			list, _ := spec{deliveries: 100, partitions: r.spec.partitions, keys: r.spec.keys, seed: r.spec.seed}.generate()
			for _, d := range list {
				want := payment{Seq: d.Seq, OrderID: d.OrderID}
				if suffix == "-jsonv2" {
					want = d.payment
				}
				require.Equal(t, want, decoded(t, d, r.options[0]), r.name)
			}
		}
	}
}

// decoded returns the event that a handler with that option gets.
func decoded(t *testing.T, d delivery, option idem.Option) (got payment) {
	record, err := d.record("payments")
	require.NoError(t, err)
	m := &idem.Message{Topic: record.Topic, Time: time.Now(), Key: record.Key, Value: record.Value}
	for _, h := range record.Headers {
		m.Headers = append(m.Headers, idem.Header{Key: h.Key, Value: h.Value})
	}
	r := idem.NewRouter(option)
	idem.On(r, eventType, func(_ context.Context, e idem.Event[payment]) error { got = e.Data; return nil })
	p, err := idem.NewProcessor(r, idem.Config{
		Store: memstore.New(), Scope: "bench", Group: "bench", Producer: noDeadLetters{newFirstError()},
	})
	require.NoError(t, err)
	require.NoError(t, p.Handle(t.Context(), m))
	require.NoError(t, p.Close())
	return got
}
