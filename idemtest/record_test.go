package idemtest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

func TestReordered(t *testing.T) {
	for in, want := range map[string]string{ // key, and the ID of the record
		"":                "",
		"a1":              "a1",
		"a1 a2 a3":        "a1 a2 a3",
		"a1 b2":           "b2 a1",
		"a1 b2 a3 c4 b5":  "c4 b2 b5 a1 a3",
		"-1 -2 a3 -4 a5":  "-4 a3 a5 -2 -1", // without a key
		"a1 -2 a3 b4 b5 ": "b4 b5 -2 a1 a3",
	} {
		var records []Record
		for _, one := range strings.Fields(in) {
			records = append(records, Record{ID: one, Key: strings.Trim(one[:1], "-")})
		}
		var ids []string
		for _, r := range reordered(records) {
			ids = append(ids, r.ID)
		}
		require.Equal(t, want, strings.Join(ids, " "), in)
	}
}

// A handler that needs the event of another key first finds out.
func TestConsumer_Reorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		r := idem.NewRouter()
		idem.On(r, "paid", func(_ context.Context, e idem.Event[payment]) error {
			order = append(order, e.ID)
			return nil
		})
		c := Run(t, r)
		c.Reorder(
			Record{ID: "ann-1", Type: "paid", Key: "ann", Value: payment{1}},
			Record{ID: "bob-1", Type: "paid", Key: "bob", Value: payment{1}},
			Record{ID: "ann-2", Type: "paid", Key: "ann", Value: payment{1}},
		)
		c.HandledOnce("ann-1", "ann-2", "bob-1")
		require.Equal(t, []string{"bob-1", "ann-1", "ann-2"}, order)
	})
}
