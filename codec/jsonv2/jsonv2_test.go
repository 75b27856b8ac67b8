package jsonv2_test

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/jsonv2"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// order has a field for each row of the table in the package comment.
type order struct {
	ID       int            `json:"id"`
	OrderID  int            `json:"order_id"`
	Name     string         `json:"name"`
	Any      any            `json:"any"`
	Number   stdjson.Number `json:"number"`
	Bytes    []byte         `json:"bytes"`
	ByteArr  [2]byte        `json:"byte_array"`
	Arr      [2]int         `json:"array"`
	Slice    []int          `json:"slice"`
	Map      map[string]int `json:"map"`
	Keys     map[int]int    `json:"keys"`
	Pointer  *int           `json:"pointer"`
	Time     time.Time      `json:"time"`
	Duration time.Duration  `json:"duration"`
	Quoted   bool           `json:"quoted,string"`
	Digits   int            `json:"digits,string"`
}

// Each row of the package comment: the meaning of encoding/json, that of this package, and the
// option that restores the former.
func TestDifferences(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, c := range map[string]struct {
		std     any // nil: an error
		same    bool
		restore []json.Options // empty: there is no option
	}{
		`{"ID":1,"Order_Id":2}`: {std: order{ID: 1, OrderID: 2}, same: true},
		`{"orderid":2}`:         {std: order{}, same: true},
		`{"id":1,"id":2}`:       {std: order{ID: 2}, restore: []json.Options{jsontext.AllowDuplicateNames(true)}},
		`{"id":1,"ID":2}`:       {std: order{ID: 2}, restore: []json.Options{jsontext.AllowDuplicateNames(true)}},
		`{"map":{"a":1,"a":2}}`: {std: order{Map: map[string]int{"a": 2}}, restore: []json.Options{jsontext.AllowDuplicateNames(true)}},
		"{\"name\":\"a\xffb\"}": {std: order{Name: "a\uFFFDb"}, restore: []json.Options{jsontext.AllowInvalidUTF8(true)}},
		`{"name":"\ud800"}`:     {std: order{Name: "\uFFFD"}, restore: []json.Options{jsontext.AllowInvalidUTF8(true)}},
		`{"unknown":{"x":[1]}}`: {std: order{}, same: true},
		`{}`:                    {std: order{}, same: true},
		`null`:                  {std: order{}, same: true},
		`{"id":null,"name":null,"any":null,"bytes":null,"array":null,"map":null,"pointer":null,"time":null}`: {std: order{}, same: true},
		`{"slice":null}`:                    {std: order{}, same: true},
		`{"slice":[]}`:                      {std: order{Slice: []int{}}, same: true},
		`{"any":1}`:                         {std: order{Any: 1.0}, same: true},
		`{"any":12345678901234567890}`:      {std: order{Any: 12345678901234567890.0}, same: true},
		`{"any":[1,"x",true,null,{"k":1}]}`: {std: order{Any: []any{1.0, "x", true, nil, map[string]any{"k": 1.0}}}, same: true},
		`{"any":1e999}`:                     {same: true},
		`{"number":1.50}`:                   {std: order{Number: "1.50"}},
		`{"bytes":"aGk="}`:                  {std: order{Bytes: []byte("hi")}, same: true},
		`{"bytes":"aG\nk="}`:                {std: order{Bytes: []byte("hi")}, restore: []json.Options{jsonv1.ParseBytesWithLooseRFC4648(true)}},
		`{"bytes":[104,105]}`:               {std: order{Bytes: []byte("hi")}, restore: []json.Options{jsonv1.FormatBytesWithLegacySemantics(true)}},
		`{"byte_array":[1,2]}`:              {std: order{ByteArr: [2]byte{1, 2}}, restore: []json.Options{jsonv1.FormatByteArrayAsArray(true)}},
		`{"array":[1]}`:                     {std: order{Arr: [2]int{1}}, restore: []json.Options{jsonv1.UnmarshalArrayFromAnyLength(true)}},
		`{"array":[1,2,3]}`:                 {std: order{Arr: [2]int{1, 2}}, restore: []json.Options{jsonv1.UnmarshalArrayFromAnyLength(true)}},
		`{"duration":5}`:                    {std: order{Duration: 5}, restore: []json.Options{jsonv1.FormatDurationAsNano(true)}},
		`{"duration":"5s"}`:                 {same: true},
		`{"time":"2026-01-02T03:04:05Z"}`:   {std: order{Time: at}, same: true},
		`{"time":"2026-01-02T3:04:05Z"}`:    {std: order{Time: at}, restore: []json.Options{jsonv1.ParseTimeWithLooseRFC3339(true)}},
		`{"quoted":"true"}`:                 {std: order{Quoted: true}, restore: []json.Options{jsonv1.StringifyWithLegacySemantics(true)}},
		`{"digits":"1"}`:                    {std: order{Digits: 1}, same: true},
		`{"digits":"01"}`:                   {std: order{Digits: 1}, restore: []json.Options{jsonv1.StringifyWithLegacySemantics(true)}},
		`{"keys":{"01":2}}`:                 {std: order{Keys: map[int]int{1: 2}}, restore: []json.Options{jsonv1.StringifyWithLegacySemantics(true)}},
		`{"id":1.0}`:                        {same: true},
		`{"id":"1"}`:                        {same: true},
		`{} {}`:                             {same: true},
		`{}x`:                               {same: true},
		"{}\n":                              {std: order{}, same: true},
		``:                                  {same: true},
		` `:                                 {same: true},
	} {
		t.Run(value, func(t *testing.T) {
			var std order
			if err := stdjson.Unmarshal([]byte(value), &std); c.std == nil {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
				require.Equal(t, c.std, std)
			}
			got, undecodable := deliver[order](t, value, jsonv2.Decode())
			if c.same && c.std != nil {
				require.Empty(t, undecodable)
				require.Equal(t, c.std, got)
			} else {
				require.NotEmpty(t, undecodable)
			}
			if len(c.restore) > 0 {
				got, undecodable = deliver[order](t, value, jsonv2.Decode(c.restore...))
				require.Empty(t, undecodable)
				require.Equal(t, c.std, got)
			}
		})
	}
}

// The options of a caller override the defaults, and later options override earlier ones.
func TestDecode_Options(t *testing.T) {
	exact := json.MatchCaseInsensitiveNames(false)
	got, undecodable := deliver[order](t, `{"ID":1,"name":"x"}`, jsonv2.Decode(exact))
	require.Empty(t, undecodable)
	require.Equal(t, order{Name: "x"}, got)
	got, _ = deliver[order](t, `{"ID":1}`, jsonv2.Decode(exact, nil, json.MatchCaseInsensitiveNames(true)))
	require.Equal(t, order{ID: 1}, got)
	_, undecodable = deliver[order](t, `{"unknown":1}`, jsonv2.Decode(json.RejectUnknownMembers(true)))
	require.Equal(t, "decode into jsonv2_test.order: JSON string at byte 1 does not fit"+
		" Go type jsonv2_test.order: unknown object member name", undecodable)
}

const secret = "4711-alice@example.com"

// refusal refuses its value, quoting it.
type refusal struct{}

func (*refusal) UnmarshalJSON(b []byte) error { return errors.New("refused: " + string(b)) }

// marking marks the error of its value.
type marking struct{}

var errMarked = errors.New("this currency was abolished")

func (*marking) UnmarshalJSON([]byte) error { return idem.Permanent(errMarked) }

// G-04: texts of errors name the fault and do not quote the value.
func TestErrors_G04(t *testing.T) {
	type box struct {
		Amount  int                      `json:"amount"`
		Amounts map[string]int           `json:"amounts"`
		At      time.Time                `json:"at"`
		Bytes   []byte                   `json:"bytes"`
		Refused refusal                  `json:"refused"`
		Inner   stdjson.RawMessage       `json:"inner"`
		Orders  map[string][2]int        `json:"orders"`
		Waits   map[string]time.Duration `json:"waits"`
		Marked  marking                  `json:"marked"`
	}
	const to = "decode into jsonv2_test.box: "
	for value, want := range map[string]string{
		`{"amount":"` + secret + `"}`:             to + "JSON string at byte 10 does not fit Go type int",
		`{"amount":47114711471147114711}`:         to + "JSON number at byte 10 does not fit Go type int: value out of range",
		`{"amount":4711.5}`:                       to + "JSON number at byte 10 does not fit Go type int: invalid syntax",
		`{"amounts":{"` + secret + `":"x"}}`:      to + "JSON string at byte 37 does not fit Go type int",
		`{"` + secret + `":1,"` + secret + `":2}`: to + "invalid JSON at byte 28: duplicate object member name",
		`{"name":"` + secret + "\xff\"}":          to + "invalid JSON at byte 31: invalid UTF-8",
		`{"name":"` + secret:                      to + "invalid JSON at byte 31: unexpected EOF",
		secret:                                    to + "JSON number at byte 0 does not fit Go type jsonv2_test.box",
		`{} ` + secret:                            to + "invalid JSON at byte 3",
		`{"at":"` + secret + `"}`:                 to + `JSON string at byte 6 does not fit Go type time.Time: parsing time as "2006-01-02T15:04:05Z07:00": does not match`,
		`{"bytes":"` + secret + `"}`:              to + "JSON string at byte 9 does not fit Go type []uint8: illegal base64 data at input byte 4",
		`{"refused":"` + secret + `"}`:            to + "JSON string at byte 11 does not fit Go type jsonv2_test.refusal: *errors.errorString",
		`{"orders":{"` + secret + `":[1,2,3]}}`:   to + "JSON array at byte 42 does not fit Go type [2]int: too many array elements",
		`{"waits":{"` + secret + `":1}}`:          to + "JSON value at byte 35 does not fit Go type time.Duration: no default representation",
		`{"marked":"` + secret + `"}`:             to + "JSON string at byte 10 does not fit Go type jsonv2_test.marking: permanent: this currency was abolished",
	} {
		_, undecodable := deliver[box](t, value, jsonv2.Decode())
		assert.Equal(t, want, undecodable, value)
		require.NotContains(t, undecodable, "4711", value)
	}
}

// The error that the decoder returned can be found.
func TestErrors_Unwrap(t *testing.T) {
	var semantic *json.SemanticError
	require.ErrorAs(t, jsonv2.NewDecodeError(&json.SemanticError{}), &semantic)
	require.ErrorIs(t, jsonv2.NewDecodeError(errMarked), errMarked)
	require.Equal(t, "*errors.errorString", jsonv2.NewDecodeError(errors.New(secret)).Error())
}

// A decoded value stays as it is when the memory of the message is used again.
func TestDecode_SharesNoMemory(t *testing.T) {
	type box struct {
		Name string         `json:"name"`
		Raw  jsontext.Value `json:"raw"`
		Any  any            `json:"any"`
	}
	var got idem.Event[box]
	m := message(`{"name":"alice","raw":{"a":1},"any":["bob"]}`)
	handle(t, m, jsonv2.Decode(), func(e idem.Event[box]) { got = e })
	clear(m.Value)
	require.Equal(t, box{Name: "alice", Raw: jsontext.Value(`{"a":1}`), Any: []any{"bob"}}, got.Data)
}

// counted counts its decodings.
type counted struct{}

var decodings atomic.Int64

func (*counted) UnmarshalJSON([]byte) error { decodings.Add(1); return nil }

// knowing is a store with transactions in which every event is fresh, or a duplicate.
type knowing struct {
	*memstore.Store
	verdict dedup.Verdict
}

func (s knowing) ClaimTx(_ context.Context, _ time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(struct{}) ([]dedup.Completion, error),
) error {
	for i := range answers {
		answers[i] = dedup.Answer{Verdict: s.verdict, First: reqs[i].Origin}
	}
	_, err := fn(struct{}{})
	return err
}

// In a transaction, too, only an event that runs is decoded.
func TestDecode_OnlyWhatRuns(t *testing.T) {
	for verdict, want := range map[dedup.Verdict]int64{dedup.Fresh: 1, dedup.Done: 0} {
		r := idem.NewRouter(jsonv2.Decode(), idem.ID(idem.FromHeader("event-id")), idem.Type(idem.Fixed("paid")))
		idem.OnTx(r, "paid", func(context.Context, struct{}, idem.Event[counted]) error { return nil })
		p, err := idem.NewProcessor(r, idem.Config{
			Store: knowing{memstore.New(), verdict}, Scope: "test", Group: "test", Producer: &deadLetters{},
		})
		require.NoError(t, err)
		before := decodings.Load()
		require.NoError(t, p.Handle(t.Context(), message(`{}`)))
		require.NoError(t, p.Close())
		require.Equal(t, want, decodings.Load()-before, "%s", verdict)
	}
}

// A tombstone is not decoded.
func TestDecode_Tombstone(t *testing.T) {
	m, runs := message(""), 0
	m.Value = nil
	require.Empty(t, handle(t, m, jsonv2.Decode(), func(e idem.Event[order]) {
		runs++
		require.Equal(t, order{}, e.Data)
	}))
	require.Equal(t, 1, runs)
}

// deliver returns the decoded value of an event, or the text of its dead letter.
func deliver[T any](t *testing.T, value string, decode idem.Option) (data T, undecodable string) {
	t.Helper()
	runs := 0
	undecodable = handle(t, message(value), decode, func(e idem.Event[T]) { runs, data = runs+1, e.Data })
	require.Equal(t, undecodable == "", runs == 1)
	return data, undecodable
}

func message(value string) *idem.Message {
	return &idem.Message{
		Topic: "orders", Offset: 1, Time: time.Now(), Key: []byte("k"), Value: []byte(value),
		Headers: []idem.Header{{Key: "event-id", Value: []byte("e1")}},
	}
}

// deadLetters keeps the dead letters of a processor.
type deadLetters struct{ list []*idem.Message }

func (d *deadLetters) Produce(_ context.Context, msgs ...*idem.Message) error {
	d.list = append(d.list, msgs...)
	return nil
}

// handle handles one message and returns the text of its dead letter.
func handle[T any](t *testing.T, m *idem.Message, decode idem.Option, fn func(idem.Event[T])) string {
	t.Helper()
	r := idem.NewRouter(decode, idem.ID(idem.FromHeader("event-id")), idem.Type(idem.Fixed("paid")), idem.Tombstones())
	idem.On(r, "paid", func(_ context.Context, e idem.Event[T]) error { fn(e); return nil })
	sent := &deadLetters{}
	p, err := idem.NewProcessor(r, idem.Config{Store: memstore.New(), Scope: "test", Group: "test", Producer: sent, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, p.Handle(t.Context(), m))
	require.NoError(t, p.Close())
	if len(sent.list) == 0 {
		return ""
	}
	l, err := deadletter.Parse(sent.list[0])
	require.NoError(t, err)
	want := idem.ClassUndecodable
	if strings.HasSuffix(l.Error, errMarked.Error()) { // marked
		want = idem.ClassPermanent
	}
	require.Equal(t, want, l.Class)
	require.Equal(t, m.Value, l.Message.Value)
	return l.Error
}
