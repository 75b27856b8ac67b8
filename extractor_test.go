package idem_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
)

// rule 7: an extractor without a descriptor, or without a function, would be stored as no
// extractor. Wiring refuses it, alone and as a part of another one.
func TestExtractor_InvalidIsRefused_Rule7(t *testing.T) {
	find := func(*idem.Message) (string, error) { return "x", nil }
	for name, invalid := range map[string]idem.Extractor{
		"zero value":         {},
		"without descriptor": idem.FromFunc("", find),
		"without function":   idem.FromFunc("own", nil),
		"in FirstOf":         idem.FirstOf(idem.StandardID(), idem.Extractor{}),
		"in LegacyFirstOf":   idem.LegacyFirstOf(idem.Extractor{}),
		"in Joined":          idem.Joined(idem.FromKey(), idem.FromFunc("", find)),
		"in Hashed":          idem.Hashed(idem.FromFunc("own", nil)),
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, invalid.String())
			_, err := invalid.Extract(&idem.Message{Key: []byte("k")})
			require.ErrorIs(t, err, idem.ErrInvalid)
			for option, o := range map[string]idem.Option{
				"ID": idem.ID(invalid), "Type": idem.Type(invalid), "Tenant": idem.Tenant(invalid),
			} {
				r := idem.NewRouter()
				idem.On(r, "paid", succeed, o)
				_, err := idem.NewProcessor(r, idem.Config{Scope: "s", Store: memstore.New(memstore.Volatile())})
				require.ErrorContains(t, err, option+": the extractor is not set")
			}
		})
	}
	valid := idem.FromFunc("own", find)
	r := idem.NewRouter()
	idem.On(r, "paid", succeed, idem.ID(valid), idem.Type(valid), idem.Tenant(valid))
	p, err := idem.NewProcessor(r, idem.Config{Scope: "s", Store: memstore.New(memstore.Volatile())})
	require.NoError(t, err)
	require.NoError(t, p.Close())
}
