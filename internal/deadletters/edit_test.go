package deadletters

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// Only values may change, and no event may become another one.
func TestCheckEdit(t *testing.T) {
	key := dedup.Key{Scope: "g", Type: "paid", ID: "1"}
	for name, c := range map[string]struct {
		before, after *string
		headers       []idem.Header
		key           dedup.Key
		id, typ       string
		omitted       bool
		want          string
	}{
		"amount":            {before: text(`{"event_id":"1","type":"paid","amount":"x"}`), after: text(`{"event_id":"1","type":"paid","amount":7}`), key: key},
		"no JSON any more":  {before: text(`{"event_id":"1","type":"paid"}`), after: text(`{"event_id":"1",`), key: key, want: "the edited value is not"},
		"repaired JSON":     {before: text(`{"event_id":"1","type":"paid",`), after: text(`{"event_id":"1","type":"paid"}`)},
		"repaired, hints":   {before: text(`{"event_id":"1",`), after: text(`{"event_id":"1","type":"paid"}`), id: "1", typ: "paid"},
		"repaired to other": {before: text(`{"event_id":"1",`), after: text(`{"event_id":"2","type":"paid"}`), id: "1", want: `event ID "2" instead of "1"`},
		"other ID":          {before: text(`{"event_id":"1","type":"paid"}`), after: text(`{"event_id":"2","type":"paid"}`), key: key, want: `event ID "2" instead of "1"`},
		"other type":        {before: text(`{"event_id":"1","type":"paid"}`), after: text(`{"event_id":"1","type":"sold"}`), key: key, want: `event type "sold"`},
		"no ID":             {before: text(`{"event_id":"1","type":"paid"}`), after: text(`{"type":"paid"}`), key: key, want: "no event ID any longer"},
		"ID beside the header": {
			before: text(`{}`), after: text(`{"event_id":"2"}`), key: key,
			headers: []idem.Header{{Key: "event-id", Value: []byte("1")}}, want: "no event ID any longer",
		},
		"ID in another place": {before: text(`{"event_id":"7","payment":"1"}`), after: text(`{"event_id":"8","payment":"1"}`), key: key},
		"no JSON":             {before: text("\x00\x01"), after: text("\x00\x02"), key: key},
		"null":                {before: nil, after: text(`{}`), key: key, want: "null"},
		"becomes null":        {before: text(`{}`), after: nil, key: key, want: "null"},
		"becomes empty":       {before: text("x"), after: text(""), key: key},
		"omitted":             {before: nil, after: text(`{}`), key: key, omitted: true, want: "no value to edit"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &deadletter.Event{
				Key: c.key, ID: c.key.ID + c.id, Type: c.key.Type + c.typ, Omitted: c.omitted,
				Message: &idem.Message{Value: bytesIn(c.before), Headers: c.headers},
			}
			err := CheckEdit(e, bytesIn(c.after))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func text(s string) *string { return &s }

func bytesIn(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

// amounts is the group with a handler that adds amounts, each event once.
func (w *world) amounts(sums map[string]int, options []idem.Option, messages ...*idem.Message) {
	w.t.Helper()
	type paid struct{ Amount int }
	r := idem.NewRouter()
	idem.On(r, "paid", func(_ context.Context, e idem.Event[paid]) error {
		if e.Data.Amount < 0 {
			return idem.Permanent(errors.New("negative"))
		}
		sums[e.ID] += e.Data.Amount
		return nil
	}, options...)
	p, err := idem.NewProcessor(r, idem.Config{
		Store: w.store, Scope: "g", Producer: w.producer, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(w.t, err)
	defer p.Close()
	for _, m := range messages {
		require.NoError(w.t, p.Handle(w.t.Context(), m))
	}
}

// An edited event changes the world once, under its ID. The copies, the original record, another
// edit and another replay have no effect after it (rule 6).
func TestReplayEdited_Once_Rule6(t *testing.T) {
	w := newWorld(t)
	sums := map[string]int{}
	original := w.event("a", `,"amount":-5`)
	w.amounts(sums, nil, original)
	lines := w.exportAll()
	require.JSONEq(t, `{"event_id":"a","type":"paid","amount":-5}`, lines[0].Value.Text)
	lines[0].Value.Text = `{"event_id":"a","type":"paid","amount":5}`
	require.True(t, lines[0].IsEdited())

	result, all := w.replayLines(lines...)
	require.Equal(t, map[Verdict]int{SeenDead: 1}, result.Verdicts)
	require.Equal(t, &Edit{
		Before: deadletter.ValueHash(original.Value), After: deadletter.ValueHash([]byte(lines[0].Value.Text)),
	}, all[0].Edit)
	lines[0].Value.Text = `{"event_id":"a","type":"paid","amount":6}` // edited again before a copy ran
	result, _ = w.replayLines(lines...)
	require.Equal(t, map[Verdict]int{SeenReopened: 1}, result.Verdicts)
	copies := w.copies()
	require.Len(t, copies, 2)
	require.Equal(t, deadletter.ValueHash(original.Value), headerText(copies[0], deadletter.HeaderEdited))

	w.amounts(sums, nil, append(copies, original, copies[0])...)
	require.Equal(t, map[string]int{"a": 5}, sums)
	require.Len(t, w.deadLetters(), 1, "the original is a duplicate, not a conflict")
	result, _ = w.replayLines(lines...)
	require.Equal(t, map[Verdict]int{SeenDone: 1}, result.Verdicts)
	require.Len(t, w.copies(), 2)
}

// An edited event that fails again is a dead letter that shows the edit. It may be edited again.
func TestReplayEdited_FailsAgain(t *testing.T) {
	w := newWorld(t)
	sums := map[string]int{}
	original := w.event("a", `,"amount":-5`)
	w.amounts(sums, nil, original)
	lines := w.exportAll()
	lines[0].Value.Text = `{"event_id":"a","type":"paid","amount":-6}`
	w.replayLines(lines...)
	w.amounts(sums, nil, w.copies()...)
	lines = w.exportAll()
	require.Len(t, lines, 2)
	require.JSONEq(t, `{"event_id":"a","type":"paid","amount":-6}`, lines[1].Value.Text)
	l, err := w.open().Get(t.Context(), Place{0, 1})
	if errors.Is(err, ErrNoRecord) {
		l, err = w.open().Get(t.Context(), Place{1, 1})
	}
	require.NoError(t, err)
	require.Equal(t, deadletter.ValueHash(original.Value), l.DeadLetter.Edited)
	lines[1].Value.Text = `{"event_id":"a","type":"paid","amount":7}`
	w.replayLines(lines[1])
	w.amounts(sums, nil, w.copies()...)
	require.Equal(t, map[string]int{"a": 7}, sums)

	// The values differ by the edit alone. No dead letter asks for an ID of its own, and none stops
	// a purge.
	s, err := w.open().Survey(t.Context(), Filter{})
	require.NoError(t, err)
	settled := 0
	_, err = w.open().EachJudged(t.Context(), Filter{}, s, Decisions{}, func(j *Judged) (bool, error) {
		require.Equal(t, SeenDone, j.Verdict, j.Note)
		require.True(t, j.Settled(false))
		settled++
		return true, nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, settled)
}

// A dead letter that fails is not reported with the edit of the one before it.
func TestReplayEdited_TheNextOneFails(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("a", ""), w.event("b", ""))
	lines := w.exportAll()
	lines[0].Value.Text += " "
	q := w.open()
	store := &blindStore{Store: w.store.(*memstore.Store)}
	q.Stores = []NamedStore{{Name: "test", Store: store}}
	first, err := lines[0].Place()
	require.NoError(t, err)
	second, err := lines[1].Place()
	require.NoError(t, err)
	var all []Done
	_, err = q.Replay(t.Context(), Replay{
		Producer: w.producer, Filter: Filter{At: []Place{first, second}}, Exported: lines,
		Each: func(d Done) { all, store.blind = append(all, d), true },
	})
	require.ErrorIs(t, err, errBroken)
	require.Len(t, all, 2)
	require.NotNil(t, all[0].Edit)
	require.ErrorIs(t, all[1].Err, errBroken)
	require.Nil(t, all[1].Edit)
}

// blindStore is a store without answers while blind is set.
type blindStore struct {
	*memstore.Store
	blind bool
}

func (s *blindStore) Inspect(ctx context.Context, keys ...dedup.Key) ([]dedup.Record, error) {
	if s.blind {
		return nil, errBroken
	}
	return s.Store.Inspect(ctx, keys...)
}

// Equal dead letters of one event can get different values by a file. None runs until the file has
// one value: a replay that takes the uncorrected one would report success (rule 34).
func TestReplayEdited_Twins(t *testing.T) {
	const wrong, right = `{"event_id":"a","type":"paid","amount":-5}`, `{"event_id":"a","type":"paid","amount":5}`
	for name, c := range map[string]struct {
		values [2]string // of the older and the newer dead letter
		want   map[Verdict]int
	}{
		"the older one is corrected": {[2]string{right, wrong}, map[Verdict]int{SeenOther: 2}},
		"the newer one is corrected": {[2]string{wrong, right}, map[Verdict]int{SeenOther: 2}},
		"both are corrected":         {[2]string{right, right}, map[Verdict]int{SeenDead: 1, SeenInFlight: 1}},
		"the older one alone":        {[2]string{right, ""}, map[Verdict]int{SeenDead: 1}},
		"none is corrected":          {[2]string{wrong, wrong}, map[Verdict]int{SeenDead: 1, SeenInFlight: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			sums := map[string]int{}
			w.amounts(sums, nil, w.event("a", `,"amount":-5`))
			nextMillisecond()
			w.amounts(sums, nil, w.event("a", `,"amount":-5`))
			var lines []Exported
			for i, x := range w.exportAll() {
				if x.Value.Text = c.values[i]; x.Value.Text != "" {
					lines = append(lines, x)
				}
			}
			result, _ := w.replayLines(lines...)
			require.Equal(t, c.want, result.Verdicts)
			require.Len(t, result.Attention, c.want[SeenOther])
			for _, a := range result.Attention {
				require.Contains(t, a.Note, "the file has different values of this event")
			}
			copies := w.copies()
			require.Len(t, copies, c.want[SeenDead])
			w.amounts(sums, nil, copies...)
			if c.want[SeenDead] > 0 && c.values[0] == right {
				require.Equal(t, map[string]int{"a": 5}, sums)
			}
		})
	}
}

// A value without an identity gets one by an edit. The store then decides as for any record.
func TestReplayEdited_WithoutIdentity(t *testing.T) {
	w := newWorld(t)
	sums := map[string]int{}
	broken := w.event("a", "")
	broken.Value = []byte(`{"event_id":"a","type":"paid","amount":3`)
	w.amounts(sums, nil, broken)
	lines := w.exportAll()
	require.Empty(t, lines[0].Scope)
	lines[0].Value.Text += "}"
	result, _ := w.replayLines(lines...)
	require.Equal(t, map[Verdict]int{SeenNoID: 1}, result.Verdicts)
	result, _ = w.replayLines(lines...)
	require.Equal(t, map[Verdict]int{SeenReplayed: 1}, result.Verdicts)
	w.amounts(sums, nil, append(w.copies(), w.copies()[0], w.event("a", `,"amount":3`))...)
	require.Equal(t, map[string]int{"a": 3}, sums)
}

// The command knows no handlers. A consumer refuses an edited copy that its handler finds under
// another ID: the event of the dead letter still waits for a good copy.
func TestReplayEdited_OtherIdentity(t *testing.T) {
	w := newWorld(t)
	sums := map[string]int{}
	byPayment := []idem.Option{idem.ID(idem.FromJSON("payment"))}
	bad := w.event("", `,"payment":"a","amount":-5`)
	w.amounts(sums, byPayment, bad)
	lines := w.exportAll()
	require.Equal(t, "a", lines[0].ID)
	edit := func(value map[string]any) Exported {
		text, err := json.Marshal(value)
		require.NoError(t, err)
		x := lines[0]
		x.Value = Bytes{Text: string(text)}
		return x
	}
	result, _ := w.replayLines(edit(map[string]any{"event_id": "", "type": "paid", "payment": "b", "amount": 5}))
	require.Equal(t, map[Verdict]int{SeenDead: 1}, result.Verdicts)
	w.amounts(sums, byPayment, w.copies()...)
	require.Empty(t, sums)
	letters := w.deadLetters()
	require.Len(t, letters, 2)
	refused := letters[0]
	if headerText(refused, deadletter.HeaderErrorClass) == "permanent" {
		refused = letters[1]
	}
	require.Equal(t, "ambiguous-id", headerText(refused, deadletter.HeaderErrorClass))
	require.Equal(t, "a", headerText(refused, deadletter.HeaderEventID))
	require.Contains(t, headerText(refused, deadletter.HeaderError), "identity")

	result, _ = w.replayLines(edit(map[string]any{"event_id": "", "type": "paid", "payment": "a", "amount": 5}))
	require.Equal(t, map[Verdict]int{SeenReopened: 1}, result.Verdicts)
	w.amounts(sums, byPayment, w.copies()...)
	require.Equal(t, map[string]int{"a": 5}, sums)
}

// A line is refused if its edit is not allowed, and so is a line of an event that the store holds.
func TestReplayEdited_Refused(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("a", ""))
	lines := w.exportAll()
	for _, value := range []Bytes{{Null: true}, {Text: "no JSON"}, {Text: `{"event_id":"b","type":"paid"}`}, {Text: "a", Base64: "YQ=="}, {Base64: "!"}} {
		lines[0].Value = value
		result, _ := w.replayLines(lines...)
		require.Equal(t, map[Verdict]int{SeenEdit: 1}, result.Verdicts, "%+v", value)
		require.NotEmpty(t, result.Attention[0].Note)
	}
	require.Empty(t, w.copies())
	records, err := w.store.(dedup.Operator).Inspect(t.Context(), dedup.Key{Scope: "g", Type: "paid", ID: "a"})
	require.NoError(t, err)
	require.Equal(t, dedup.GivenUp, records[0].State, "not reopened")
	j := &Judged{Found: foundIn(w.deadLetters()[0]), Verdict: SeenDeferred, Action: ActUnblock}
	x := j.Found.Export()
	x.Value = Bytes{Text: `{"event_id":"a","type":"paid","amount":1}`}
	require.NotNil(t, j.exported(&x))
	require.Equal(t, SeenEdit, j.Verdict)
}
