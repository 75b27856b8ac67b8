package idem_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// modelled is an extractor with a model. The name that the model gives a record has the form of the
// identity and all of its parts, with no limit of length. Two records are one event if and only if
// their names are equal.
type modelled struct {
	words string
	find  idem.Extractor
	name  func(*idem.Message) (string, bool)
}

func namedPlain(id string) string { return fmt.Sprintf("plain %q", id) }

func namedParts(form string, parts ...string) string { return fmt.Sprintf("%s %q", form, parts) }

func headerIn(m *idem.Message, name string) (string, bool) {
	for _, h := range m.Headers {
		if h.Key == name {
			return string(h.Value), true
		}
	}
	return "", false
}

func fieldIn(m *idem.Message, name string) (string, bool) {
	var fields map[string]string
	if json.Unmarshal(m.Value, &fields) != nil {
		return "", false
	}
	return fields[name], fields[name] != ""
}

// leaves of extractors.
var leaves = []modelled{
	{"standard", idem.StandardID(), func(m *idem.Message) (string, bool) {
		ceID, _ := headerIn(m, "ce_id")
		header, _ := headerIn(m, "event-id")
		field, _ := fieldIn(m, "event_id")
		id := ceID + header + field // those that are there are equal, else there is an error
		for _, one := range []string{field, header, ceID} {
			if one != "" {
				id = one
			}
		}
		if source, ok := headerIn(m, "ce_source"); ok && ceID != "" {
			return namedParts("joined", namedPlain(source), namedPlain(id)), true
		}
		return namedPlain(id), id != ""
	}},
	{"header", idem.FromHeader("x"), func(m *idem.Message) (string, bool) {
		v, _ := headerIn(m, "x")
		return namedPlain(v), v != ""
	}},
	{"source", idem.FromHeader("ce_source"), func(m *idem.Message) (string, bool) {
		v, _ := headerIn(m, "ce_source")
		return namedPlain(v), v != ""
	}},
	{"json", idem.FromJSON("y"), func(m *idem.Message) (string, bool) {
		v, ok := fieldIn(m, "y")
		return namedPlain(v), ok
	}},
	{"key", idem.FromKey(), func(m *idem.Message) (string, bool) { return namedPlain(string(m.Key)), len(m.Key) > 0 }},
	{"value", idem.FromValue(), func(m *idem.Message) (string, bool) { return namedPlain(string(m.Value)), len(m.Value) > 0 }},
	{"fixed", idem.Fixed("a:b"), func(*idem.Message) (string, bool) { return namedPlain("a:b"), true }},
	{"own", idem.FromFunc("own", func(m *idem.Message) (string, error) {
		if len(m.Key) == 0 {
			return "", idem.ErrNotFound
		}
		return "joined:" + string(m.Key), nil
	}), func(m *idem.Message) (string, bool) { return namedPlain("joined:" + string(m.Key)), len(m.Key) > 0 }},
}

// extractorOf makes an extractor out of numbers. Each extractor comes from some numbers.
func extractorOf(number func(below int) int, depth int) modelled {
	kind := number(8)
	if depth == 0 || kind < 3 {
		return leaves[number(len(leaves))]
	}
	parts := make([]modelled, 1+number(3))
	fns, words := make([]idem.Extractor, len(parts)), make([]string, len(parts))
	for i := range parts {
		parts[i] = extractorOf(number, depth-1)
		fns[i], words[i] = parts[i].find, parts[i].words
	}
	all := func(form string) func(*idem.Message) (string, bool) {
		return func(m *idem.Message) (string, bool) {
			names := make([]string, len(parts))
			for i, p := range parts {
				name, ok := p.name(m)
				if !ok {
					return "", false
				}
				names[i] = name
			}
			return namedParts(form, names...), true
		}
	}
	list := "(" + strings.Join(words, ", ") + ")"
	switch kind {
	case 3:
		return modelled{"joined" + list, idem.Joined(fns...), all("joined")}
	case 4:
		return modelled{"hashed" + list, idem.Hashed(fns...), all("hashed")}
	case 5:
		leaf := leaves[1+number(len(leaves)-1)] // the result of a function is a plain ID: not of StandardID
		return modelled{"described(" + leaf.words + ")", idem.FromFunc("words", leaf.find.Extract), leaf.name}
	default:
		return modelled{"first" + list, idem.FirstOf(fns...), func(m *idem.Message) (string, bool) {
			for _, p := range parts {
				if name, ok := p.name(m); ok {
					return name, true
				}
			}
			return "", false
		}}
	}
}

// oneKeyEach fails if two records have one key and different names, or one name and different keys.
// Records without a key are left out.
func oneKeyEach(t *testing.T, r modelled, msgs []*idem.Message) (found int) {
	t.Helper()
	keys, names := map[string]string{}, map[string]string{}
	for _, m := range msgs {
		id, err := r.find.Extract(m)
		if err != nil || (dedup.Key{ID: id}).Validate() != nil {
			continue
		}
		found++
		name, ok := r.name(m)
		require.True(t, ok, "%s found %q in %+v", r.words, id, m)
		other, known := keys[id]
		require.True(t, !known || other == name, "%s: one key %q for\n%s\n%s", r.words, id, other, name)
		key, known := names[name]
		require.True(t, !known || key == id, "%s: %s has two keys, %q and %q", r.words, name, key, id)
		keys[id], names[name] = name, id
	}
	return found
}

// recordOf is a record with the given values in the places where extractors look; an empty one is
// not there.
func recordOf(ceID, ceSource, eventID, x, eventIDField, y, key string, emptySource bool) *idem.Message {
	m := &idem.Message{Key: []byte(key)}
	for _, h := range [][2]string{{"ce_id", ceID}, {"ce_source", ceSource}, {"event-id", eventID}, {"x", x}} {
		if h[1] != "" || h[0] == "ce_source" && emptySource {
			m.Headers = append(m.Headers, idem.Header{Key: h[0], Value: []byte(h[1])})
		}
	}
	fields := map[string]string{}
	for _, f := range [][2]string{{"event_id", eventIDField}, {"y", y}} {
		if f[1] != "" {
			fields[f[0]] = strings.ToValidUTF8(f[1], "")
		}
	}
	if len(fields) > 0 {
		m.Value, _ = json.Marshal(fields)
	}
	return m
}

// bases are values to begin with, some of them as long as keys may be.
func bases(number func(below int) int) string {
	short := []string{"a", "b", ":", "%", "%3A", "{", "~", "joined:", "plain:", "hashed:", "a:b", "joined:a:b"}
	if number(3) > 0 {
		return short[number(len(short))]
	}
	return short[number(len(short))] + strings.Repeat("l", 100+number(160))
}

// alike are two values, and texts that extractors make of them.
func alike(number func(below int) int) []string {
	u, v := bases(number), bases(number)
	joined := dedup.Join(u, v)
	all := []string{u, v, joined, dedup.Join(u), dedup.Hash(u, v), dedup.Hash(u), dedup.Hash(joined), "{" + dedup.Hash(joined) + "}"}
	for _, made := range all[:len(all):len(all)] {
		all = append(all, "joined:"+made, "hashed:"+made, "plain:"+made)
	}
	return append(all, "plain:joined:"+joined, "plain:{"+dedup.Hash("joined:"+joined)+"}")
}

// Rule 7: for each extractor from the functions of this package, two records get one key only if
// the extractor finds the same values in both, in the same form.
func TestIdentity_OneKeyForEachEvent(t *testing.T) {
	rng, _ := newSeed(t)
	found := 0
	for range soak(150, 1_500) {
		r, values := extractorOf(rng.IntN, 3), alike(rng.IntN)
		pick := func() string {
			switch rng.IntN(6) {
			case 0, 1:
				return ""
			case 2, 3:
				return values[rng.IntN(3)] // two parts, and the two joined
			}
			return values[rng.IntN(len(values))]
		}
		msgs := make([]*idem.Message, 400)
		for i := range msgs {
			id := pick()
			ids := [3]string{}
			for j := range ids { // mostly one, since several must be equal
				if rng.IntN(2) == 0 {
					ids[j] = id
				}
			}
			msgs[i] = recordOf(ids[0], pick(), ids[1], pick(), ids[2], pick(), pick(), rng.IntN(8) == 0)
		}
		found += oneKeyEach(t, r, msgs)
	}
	require.Greater(t, found, 5_000, "most records have an identity")
}

func FuzzIdentityForms(f *testing.F) {
	f.Add([]byte{0, 0}, "12345", "order", "", "", "", "", "", "order:12345", "", "")
	f.Add([]byte{6, 1, 3, 1, 1, 2, 1, 3}, "", "a", "", "b", "a:b", "", "", "", "", "joined:a:b")
	f.Fuzz(func(t *testing.T, shape []byte, ceID, source, eventID, x, y, ceID2, source2, eventID2, x2, y2 string) {
		next := 0
		number := func(below int) int {
			if next++; next > len(shape) {
				return 0
			}
			return int(shape[next-1]) % below
		}
		oneKeyEach(t, extractorOf(number, 3), []*idem.Message{
			recordOf(ceID, source, eventID, x, "", y, x, false), recordOf(ceID2, source2, eventID2, x2, "", y2, x2, false),
			recordOf("", source, ceID, x, "", y, x2, false), recordOf("", source2, "", x, strings.ToValidUTF8(ceID2, ""), y, x2, true),
		})
	})
}

// Rule 7: the parts of an event are too long for a key together, and an extractor finds them in two
// ways. Both make one key.
func TestIdentity_LongPartsHaveOneKey(t *testing.T) {
	id := strings.Repeat("i", 100)
	joined := idem.Joined(idem.FromHeader("x"), idem.FromHeader("event-id"))
	for _, source := range []string{strings.Repeat("s", 20), strings.Repeat("s", 200)} {
		cloud, plain := recordOf(id, source, "", "", "", "", "", false), recordOf("", "", id, source, "", "", "", false)
		for name, wrap := range map[string]func(idem.Extractor) idem.Extractor{
			"hashed":        func(f idem.Extractor) idem.Extractor { return idem.Hashed(f) },
			"joined":        func(f idem.Extractor) idem.Extractor { return idem.Joined(f, idem.Fixed("step")) },
			"first, hashed": func(f idem.Extractor) idem.Extractor { return idem.Hashed(idem.FirstOf(f, idem.FromKey())) },
			"nested":        func(f idem.Extractor) idem.Extractor { return idem.Hashed(idem.Joined(f, idem.Fixed("step"))) },
		} {
			want, err := wrap(idem.StandardID()).Extract(cloud)
			require.NoError(t, err, name)
			got, err := wrap(joined).Extract(plain)
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
			require.NoError(t, dedup.Key{ID: got, Scope: "g", Type: "t"}.Validate(), name)
		}
	}
	long, err := joined.Extract(recordOf("", "", id, strings.Repeat("s", 200), "", "", "", false))
	require.NoError(t, err)
	require.ErrorIs(t, dedup.Key{ID: long, Scope: "g", Type: "t"}.Validate(), dedup.ErrKey, "by itself it does not fit, and is not cut")
}

// The two events that were one.
func TestIdentity_JoinedAndPlainAreTwoEvents(t *testing.T) {
	for name, c := range map[string]struct {
		id   idem.Extractor
		msgs []*idem.Message
	}{
		"CloudEvents": {idem.StandardID(), []*idem.Message{
			recordOf("12345", "order", "", "", "", "", "", false), recordOf("", "", "order:12345", "", "", "", "", false),
		}},
		"fallback": {idem.FirstOf(idem.Joined(idem.FromHeader("ce_source"), idem.FromHeader("ce_id")), idem.FromHeader("event-id")), []*idem.Message{
			recordOf("12345", "order", "", "", "", "", "", false), recordOf("", "", "order:12345", "", "", "", "", false),
		}},
		"hash": {idem.FirstOf(idem.Hashed(idem.FromHeader("ce_id")), idem.FromHeader("event-id")), []*idem.Message{
			recordOf("12345", "", "", "", "", "", "", false), recordOf("", "", dedup.Hash("12345"), "", "", "", "", false),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.on(succeed, idem.ID(c.id), idem.Type(idem.Fixed("paid")))
				p := b.start()
				for range 2 {
					for i, m := range c.msgs {
						m.Value, m.Offset = []byte(`{}`), int64(i)
						require.NoError(t, p.Handle(t.Context(), m))
					}
				}
				require.Equal(t, 2, b.count("run 1"), "%v", b.all())
				require.Equal(t, 2, b.count("claim: done"))
			})
		})
	}
}

// Two handlers of one type, found by different sources, share keys. Their identities do not meet,
// in no combination of forms.
func TestIdentity_TwoHandlersOfOneType(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed, idem.ID(idem.FromKey()))
		byHeader := b.router.With(idem.Type(idem.FromHeader("kind")), idem.ID(idem.Joined(idem.FromHeader("order"), idem.Fixed("charge"))))
		idem.On(byHeader, "paid", func(context.Context, idem.Event[payload]) error { b.add("joined"); return nil })
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), &idem.Message{Value: []byte(`{}`), Headers: headers("kind", "paid", "order", "7")}))
		for _, key := range []string{"7:charge", "joined:7:charge", "plain:joined:7:charge"} {
			require.NoError(t, p.Handle(t.Context(), &idem.Message{Key: []byte(key), Value: []byte(`{"type":"paid"}`)}))
		}
		require.Equal(t, 1, b.count("joined"))
		require.Equal(t, 3, b.count("run 1"), "%v", b.all())
	})
}

// An ID that fits without a word in front fits with one.
func TestIdentity_LongestIDsFit(t *testing.T) {
	mixed := idem.FirstOf(idem.Joined(idem.FromHeader("x"), idem.FromHeader("ce_source")), idem.FromHeader("event-id"))
	for n := 230; n <= dedup.MaxPart; n++ {
		long := strings.Repeat("l", n)
		for name, m := range map[string]*idem.Message{
			"joined": recordOf("", "s", "", long[2:], "", "", "", false), "plain": recordOf("", "", "joined:"+long[7:], "", "", "", "", false),
			"CloudEvent": recordOf(long, strings.Repeat("s", n), "", "", "", "", "", false),
		} {
			find := mixed
			if name == "CloudEvent" {
				find = idem.StandardID()
			}
			id, err := find.Extract(m)
			require.NoError(t, err, name)
			require.NoError(t, dedup.Key{ID: id}.Validate(), "%s of %d bytes: %q", name, n, id)
		}
	}
	three := idem.FirstOf(idem.Joined(idem.FromHeader("x"), idem.FromHeader("ce_source")), idem.Joined(idem.FromHeader("event-id")), idem.FromKey())
	long := strings.Repeat("l", 250)
	hash := dedup.Hash(dedup.Join(long, "s"))
	ids := map[string]bool{}
	for _, m := range []*idem.Message{
		recordOf("", "s", "", long, "", "", "", false), recordOf("", "", hash, "", "", "", "", false), recordOf("", "", "{"+hash+"}", "", "", "", "", false),
		recordOf("", "", "", "", "", "", "joined:{"+hash+"}", false),
	} {
		id, err := three.Extract(m)
		require.NoError(t, err)
		ids[id] = true
	}
	require.Len(t, ids, 4, "what was shortened is told from what looks like it: %v", ids)

	id, err := mixed.Extract(recordOf("", "s", "", strings.Repeat("l", 254), "", "", "", false))
	require.NoError(t, err)
	require.ErrorIs(t, dedup.Key{ID: id}.Validate(), dedup.ErrKey, "one that did not fit before is not cut")
	_, err = mixed.Extract(recordOf("", "", "", "", "", "", "", false))
	require.ErrorIs(t, err, idem.ErrNotFound)
	id, err = idem.FirstOf(idem.Joined(), idem.FromKey()).Extract(&idem.Message{})
	require.NoError(t, err)
	require.Empty(t, id, "no parts are no identity")
}

// The old forms are for stores that have such identities.
func TestIdentity_Legacy(t *testing.T) {
	long := strings.Repeat("s", 250)
	for _, c := range []struct {
		want string
		f    idem.Extractor
		m    *idem.Message
	}{
		{"order:12345", idem.LegacyStandardID(), recordOf("12345", "order", "", "", "", "", "", false)},
		{"joined:order:12345", idem.LegacyStandardID(), recordOf("", "", "joined:order:12345", "", "", "", "", false)},
		{dedup.Hash(long, "12345"), idem.LegacyStandardID(), recordOf("12345", long, "", "", "", "", "", false)},
		{"a:b", idem.LegacyFirstOf(idem.Joined(idem.FromHeader("x"), idem.FromKey()), idem.FromHeader("event-id")), recordOf("", "", "", "a", "", "", "b", false)},
		{"a:b", idem.LegacyFirstOf(idem.Joined(idem.FromHeader("x"), idem.FromKey()), idem.FromHeader("event-id")), recordOf("", "", "a:b", "", "", "", "", false)},
	} {
		id, err := c.f.Extract(c.m)
		require.NoError(t, err)
		require.Equal(t, c.want, id)
	}
	_, err := idem.LegacyStandardID().Extract(recordOf("a\x00", "s", "", "", "", "", "", false))
	require.ErrorIs(t, err, idem.ErrInvalid)
}
