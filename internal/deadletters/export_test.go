package deadletters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv/rawkafka"
)

// exportAll returns the lines of all dead letters, as they come out of a file.
func (w *world) exportAll() []Exported {
	w.t.Helper()
	var file bytes.Buffer
	_, err := w.open().List(w.t.Context(), Filter{}, func(l *Found) (bool, error) {
		x := l.Export()
		return true, WriteExported(&file, &x)
	})
	require.NoError(w.t, err)
	lines, err := ReadExported(&file)
	require.NoError(w.t, err)
	return lines
}

// replayLines replays a file.
func (w *world) replayLines(lines ...Exported) (Result, []Done) {
	w.t.Helper()
	var f Filter
	for i := range lines {
		at, err := lines[i].Place()
		require.NoError(w.t, err)
		f.At = append(f.At, at)
	}
	var all []Done
	result, err := w.open().Replay(w.t.Context(), Replay{
		Producer: w.producer, Filter: f, Exported: lines, Each: func(d Done) { all = append(all, d) },
	})
	require.NoError(w.t, err)
	return result, all
}

// A record with a time that JSON does not have is listed, exported and replayed as any other.
func TestExported_TimeBeyondTheYear9999(t *testing.T) {
	w := newWorld(t)
	const far = 1_700_000_000_000_000
	m := deadLetter("a", "failed", time.Now())
	var headers []kmsg.Header
	for _, h := range m.Headers {
		headers = append(headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	headers = append(headers, kmsg.Header{Key: deadletter.HeaderFirstFailure, Value: fmt.Append(nil, far)})
	rawkafka.ProduceAt(t, w.brokers, m.Topic, far, string(m.Value), headers...)
	page, err := w.open().Newest(t.Context(), Filter{}, 10)
	require.NoError(t, err)
	text, err := json.Marshal(page.Rows)
	require.NoError(t, err)
	require.Contains(t, string(text), `"last_failure":"0001-01-01T00:00:00Z"`)
	require.Equal(t, time.UnixMilli(far).UTC(), page.Last().Failed, "the place in the list is exact")
	lines := w.exportAll()
	require.Len(t, lines, 1)
	_, err = json.Marshal(lines[0])
	require.NoError(t, err)
	result, _ := w.replayLines(lines...)
	require.Equal(t, map[Verdict]int{SeenNever: 1}, result.Verdicts)
	l, err := w.open().Get(t.Context(), Place{Partition: page.Last().Place.Partition})
	require.NoError(t, err)
	_, err = json.Marshal(l.Detail(true))
	require.NoError(t, err)
}

// A record of any bytes comes out of a file as it was, and a file is read only if it is one.
func TestExported_RoundTrip(t *testing.T) {
	for name, m := range map[string]*idem.Message{
		"text":   {Key: []byte("k"), Value: []byte("{\"a\":\"<\u2028>\"}\n")},
		"binary": {Key: []byte{0xff}, Value: []byte{0, 0, 1, 0xfe}, Headers: []idem.Header{{Key: "h", Value: []byte{0x80}}}},
		"empty":  {Key: []byte{}, Value: []byte{}, Headers: []idem.Header{{Key: "h", Value: []byte{}}, {Key: "h", Value: nil}}},
		"null":   {},
	} {
		t.Run(name, func(t *testing.T) {
			e := deadletter.Event{
				Message: m, Group: "g", Class: idem.ClassFailed, Key: dedup.Key{Scope: "g", Type: "paid", ID: "1"},
				FirstFailure: time.UnixMilli(1), LastFailure: time.UnixMilli(1234567890123), Error: "bad\x1b\n",
			}
			m.Topic, m.Offset = "orders", 7
			letter := e.DeadLetter("orders.g.dlq")
			l := foundIn(letter)
			require.NoError(t, l.Err)
			x := l.Export()
			var file bytes.Buffer
			require.NoError(t, WriteExported(&file, &x))
			require.Equal(t, 1, strings.Count(file.String(), "\n"))
			lines, err := ReadExported(&file)
			require.NoError(t, err)
			require.Equal(t, x, lines[0])
			require.Empty(t, lines[0].Differs(l))
			require.False(t, lines[0].IsEdited())
			value, err := lines[0].Value.Bytes()
			require.NoError(t, err)
			require.Equal(t, m.Value, value)
		})
	}
	good := `{"format":"idem-dead-letter/1","record":"0/1","topic":"t","last_failure":"2026-01-02T03:04:05Z","attempts":0,"generation":0,"kafka_key":{},"headers":[],"sha256":"","value":{}}`
	for text, want := range map[string]string{
		"":                                       "no line",
		"\n":                                     "no line",
		"[]":                                     "line 1",
		good + "\n" + good:                       "line 2: a second line of record 0/1",
		good + good:                              "text after the object",
		strings.Replace(good, "/1\"", "/2\"", 1): `format "idem-dead-letter/2"`,
		strings.Replace(good, `"0/1"`, `"0"`, 1): "is not a record",
		strings.Replace(good, `"topic"`, `"tpc"`, 1):      "unknown field",
		strings.Repeat(fmt.Sprintf("%-64s\n", " "), 1000): "no line",
	} {
		_, err := ReadExported(strings.NewReader(text))
		require.ErrorIs(t, err, ErrExport, text)
		require.ErrorContains(t, err, want)
	}
	_, err := ReadExported(strings.NewReader(good))
	require.NoError(t, err)
}

// A line that names another topic, group, event, header or place than its record is refused, and
// the others are replayed (G-03).
func TestReplayExported_Tampered_G03(t *testing.T) {
	header := func(x *Exported, name, value string) {
		for i, h := range x.Headers {
			if h.Key == name {
				x.Headers[i].Bytes = Bytes{Text: value}
			}
		}
	}
	for name, tamper := range map[string]func(x *Exported){
		"topic":          func(x *Exported) { x.Topic = "other.g.dlq" },
		"group":          func(x *Exported) { x.Group = "other" },
		"event":          func(x *Exported) { x.ID = "victim" },
		"scope":          func(x *Exported) { x.Scope = "theirs" },
		"origin":         func(x *Exported) { x.Origin = "payments/0/1" },
		"generation":     func(x *Exported) { x.Generation = 9 },
		"Kafka key":      func(x *Exported) { x.Key = Bytes{Text: "k"} },
		"header of Idem": func(x *Exported) { header(x, deadletter.HeaderTopic, "payments") },
		"another header": func(x *Exported) { x.Headers = append(x.Headers, Header{Key: "tenant"}) },
		"lost header":    func(x *Exported) { x.Headers = x.Headers[1:] },
		"hash":           func(x *Exported) { x.SHA256 = deadletter.ValueHash([]byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fail(w.event("a", ""), w.event("b", ""))
			lines := w.exportAll()
			lines[0].Value.Text += " "
			tamper(&lines[0])
			result, all := w.replayLines(lines...)
			refused := slices.IndexFunc(all, func(d Done) bool { return d.Record == lines[0].Record })
			require.Equal(t, &Edit{
				Before: lines[0].SHA256, After: deadletter.ValueHash([]byte(lines[0].Value.Text)),
			}, all[refused].Edit, "the attempt is audited")
			require.Equal(t, map[Verdict]int{SeenChanged: 1, SeenDead: 1}, result.Verdicts)
			require.Contains(t, result.Attention[0].Note, "differ in")
			require.Len(t, w.copies(), 1)
			require.NotContains(t, string(w.copies()[0].Value), `"`+lines[0].ID+`"`)
		})
	}
	t.Run("place", func(t *testing.T) {
		w := newWorld(t)
		w.fail(w.event("a", ""))
		lines := w.exportAll()
		lines[0].Record = "1/77"
		result, all := w.replayLines(lines...)
		require.Nil(t, all[0].Edit)
		require.Equal(t, map[Verdict]int{SeenGone: 1}, result.Verdicts)
		require.Equal(t, "1/77", result.Attention[0].Record)
		lines[0].Value.Text += " "
		_, all = w.replayLines(lines...)
		require.NotNil(t, all[0].Edit, "the attempt is audited")
		require.Empty(t, w.copies())
	})
	t.Run("record of another group in the topic", func(t *testing.T) {
		w := newWorld(t)
		m := deadLetter("a", "failed", time.Now())
		for i := range m.Headers {
			if m.Headers[i].Key == deadletter.HeaderGroup {
				m.Headers[i].Value = []byte("other")
			}
		}
		require.NoError(t, w.producer.Produce(t.Context(), m))
		lines := w.exportAll()
		lines[0].Value = Bytes{Text: `{"event_id":"a","type":"paid","amount":1}`}
		result, all := w.replayLines(lines...)
		require.Equal(t, map[Verdict]int{SeenGroup: 1}, result.Verdicts)
		require.NotNil(t, all[0].Edit, "the attempt is audited")
		require.Empty(t, w.copies())
	})
}
