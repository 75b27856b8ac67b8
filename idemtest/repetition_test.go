package idemtest

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

func TestLocalName(t *testing.T) {
	for _, c := range []struct {
		full, name string
		named      bool
	}{
		{"example.com/a.b/shop.newShop", "newShop", true},
		{"example.com/shop.(*shop).state", "(*shop).state", true},
		{"example.com/shop.shop.state", "shop.state", true},
		{"example.com/shop.(*shop).state-fm", "", false},
		{"example.com/shop.TestPaid.func1", "", false},
		{"example.com/shop.TestPaid.func1.2", "", false},
		{"example.com/shop.init.func1", "", false},
		{"example.com/shop.newWorld[...]", "", false},
		{"shop.newShop", "newShop", true},
	} {
		name, named := localName(c.full)
		require.Equal(t, c.named, named, c.full)
		if named {
			require.Equal(t, c.name, name)
		}
	}
}

// The code of a report is Go, with all settings that decide about the effect of the schedule.
func TestRepetition_Code(t *testing.T) {
	s := newSearch("Torture", []TortureOption{
		Records(Record{
			ID: "p-1", Type: "paid", Key: "a\"b", Value: payment{1}, Topic: "payments",
			Headers: []idem.Header{{Key: "h", Value: []byte("\x00")}}, Time: time.Unix(0, 5),
		}, Record{ID: "p-2", Value: []byte("\xff{")}, Record{ID: "p-3"}, Record{ID: "p-4", Value: json.RawMessage("{ no JSON")}, Record{ID: "p-5", Value: json.RawMessage("{ }")}),
		AcceptRepeats("send mail"), AcceptUnknown(), AcceptDeadLetters(),
		Guard(dedup.GuardConfig{Lease: time.Minute, Rerun: true, Keyring: &dedup.Keyring{}}),
		TxStore(func(*shop) dedup.TxStore[int] { return nil }),
	}, argument{"setup", newShop}, argument{"handlers", func() {}}, argument{"state", (*shop).state})
	code := s.again.code(schedule{{4, die}, {7, fail}})
	_, err := parser.ParseFile(token.NewFileSet(), "", "package shop\n"+code, parser.AllErrors)
	require.NoError(t, err, code)
	for _, part := range []string{
		"func TestTortureAgain(t *testing.T) {\n",
		"\t// handlers is the function at repetition_test.go:",
		"\t// Guard: add the Keyring of the test\n",
		"\t// txStore is the function at repetition_test.go:",
		"idemtest.Torture(t, newShop, handlers, (*shop).state,\n",
		`idemtest.Record{ID: "p-1", Type: "paid", Key: "a\"b", Topic: "payments", ` +
			`Value: []byte("{\"amount\":1}"), Headers: []idem.Header{{Key: "h", Value: []byte("\x00")}}, Time: time.Unix(0, 5)},`,
		`idemtest.Record{ID: "p-2", Value: []byte("\xff{")},`,
		`idemtest.Record{ID: "p-3"},`,
		`idemtest.Record{ID: "p-4", Value: []byte("{ no JSON")},`, `idemtest.Record{ID: "p-5", Value: []byte("{ }")},`,
		`idemtest.AcceptRepeats("send mail"),`, "idemtest.AcceptUnknown(),", "idemtest.AcceptDeadLetters(),",
		"idemtest.Guard(dedup.GuardConfig{Lease: 60000000000, Rerun: true}),",
		"idemtest.TxStore(txStore),", `idemtest.Only("4:die 7:fail"),`,
	} {
		require.Contains(t, code, part)
	}
}

// A nil value is a tombstone, and an empty one is not. The code keeps them apart.
func TestRecordCode_Values(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		code  string
	}{
		"none":              {nil, `idemtest.Record{ID: "p"}`},
		"nil bytes":         {[]byte(nil), `idemtest.Record{ID: "p"}`},
		"nil raw message":   {json.RawMessage(nil), `idemtest.Record{ID: "p"}`},
		"no bytes":          {[]byte{}, `idemtest.Record{ID: "p", Value: []byte("")}`},
		"empty raw message": {json.RawMessage{}, `idemtest.Record{ID: "p", Value: []byte("")}`},
		"nil pointer":       {(*payment)(nil), `idemtest.Record{ID: "p", Value: []byte("null")}`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.code, recordCode(Record{ID: "p", Value: c.value}))
			m, err := Record{ID: "p", Value: c.value}.message(time.Time{})
			require.NoError(t, err)
			require.Equal(t, !strings.Contains(c.code, "Value:"), m.Value == nil)
		})
	}
}
