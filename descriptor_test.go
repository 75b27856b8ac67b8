package idem_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

func ownID(m *idem.Message) (string, error) { return strings.ToLower(string(m.Key)), nil }

// TestDescriptor_Golden_Rule7: these words are in the stores of users. One that changes here stops
// their consumers.
func TestDescriptor_Golden_Rule7(t *testing.T) {
	for want, f := range map[string]idem.Extractor{
		`standard-id/2`:                     idem.StandardID(),
		`standard-id/1`:                     idem.LegacyStandardID(),
		`standard-type/1`:                   idem.StandardType(),
		`header("ce_id")`:                   idem.FromHeader("ce_id"),
		`header("a, \"b\"\x00")`:            idem.FromHeader("a, \"b\"\x00"),
		`key`:                               idem.FromKey(),
		`value`:                             idem.FromValue(),
		`json("order.id")`:                  idem.FromJSON("order.id"),
		`fixed("charge")`:                   idem.Fixed("charge"),
		`described("my own, v2")`:           idem.FromFunc("my own, v2", ownID),
		`first(standard-id/2)`:              idem.FirstOf(idem.StandardID()),
		`first(joined(key), joined(value))`: idem.FirstOf(idem.Joined(idem.FromKey()), idem.Joined(idem.FromValue())),
		`first/2(standard-id/2, key)`:       idem.FirstOf(idem.StandardID(), idem.FromKey()),
		`first/2(joined(key, value), header("id"))`:        idem.FirstOf(idem.Joined(idem.FromKey(), idem.FromValue()), idem.FromHeader("id")),
		`first(joined(key), header("id"))`:                 idem.LegacyFirstOf(idem.Joined(idem.FromKey()), idem.FromHeader("id")),
		`first(standard-id/1, key)`:                        idem.FirstOf(idem.LegacyStandardID(), idem.FromKey()),
		`first(header("id"), json("id"))`:                  idem.FirstOf(idem.FromHeader("id"), idem.FromJSON("id")),
		`joined(json("a"), first(key, value), fixed("x"))`: idem.Joined(idem.FromJSON("a"), idem.FirstOf(idem.FromKey(), idem.FromValue()), idem.Fixed("x")),
		`first()`: idem.FirstOf(),
	} {
		require.Equal(t, want, f.String())
	}
}

// registry is a store that notes its registrations.
type registry struct {
	dedup.Store
	registered []dedup.Registration
	progress   map[string][]dedup.Progress
	err        error
}

func newRegistry() *registry {
	return &registry{Store: memstore.New(memstore.Volatile()), progress: make(map[string][]dedup.Progress)}
}

func (r *registry) Register(_ context.Context, reg dedup.Registration) error {
	r.registered = append(r.registered, reg)
	return r.err
}

func (r *registry) RecordProgress(_ context.Context, scope string, p []dedup.Progress) error {
	r.progress[scope] = p
	return r.err
}

func (r *registry) Progress(context.Context, string, ...string) ([]dedup.Progress, error) {
	return nil, nil
}

// TestProcessor_Register_Rule14: each store learns of the scopes and descriptors that it keeps, and
// of no others.
func TestProcessor_Register_Rule14(t *testing.T) {
	first, second, third := newRegistry(), newRegistry(), memstore.New(memstore.Volatile())
	r := idem.NewRouter()
	none := func(context.Context, idem.Event[int]) error { return nil }
	idem.On(r, "a", none, idem.ID(idem.FromKey()))
	idem.On(r, "b", none, idem.Scope("old-group"))
	idem.On(r, "c", none, idem.Store(second), idem.Tenant(idem.FromHeader("tenant")))
	idem.On(r, "d", none, idem.Store(third))
	idem.On(r, "e", none, idem.Scope("old-group"), idem.ID(idem.FromJSON("payment_id")), idem.Type(idem.Fixed("e")))
	idem.On(r, "a", none, idem.Type(idem.FromHeader("kind")))
	p, err := idem.NewProcessor(r, idem.Config{Store: first, Scope: "s", Group: "g"})
	require.NoError(t, err)
	defer p.Close()

	said := dedup.Registration{Topics: []string{"t"}, NoOffsets: true, NewScope: true, AcceptNewIdentity: true}
	require.NoError(t, p.Register(t.Context(), said))
	said.Group, said.Scope = "g", "old-group"
	said.Descriptors = map[string]string{
		"b": "type=standard-type/1 id=standard-id/2", "e": `type=fixed("e") id=json("payment_id")`,
	}
	require.Equal(t, said, first.registered[0])
	said.Scope = "s"
	said.Descriptors = map[string]string{"a": `type=header("kind") id=standard-id/2 | type=standard-type/1 id/2=key`}
	require.Equal(t, said, first.registered[1])
	said.Descriptors = map[string]string{"c": `type=standard-type/1 id=standard-id/2 tenant=header("tenant")`}
	require.Equal(t, []dedup.Registration{said}, second.registered)

	progress := []dedup.Progress{{Topic: "t", Next: 1}}
	require.NoError(t, p.RecordProgress(t.Context(), progress))
	require.Equal(t, map[string][]dedup.Progress{"s": progress, "old-group": progress}, first.progress)
	require.Equal(t, map[string][]dedup.Progress{"s": progress}, second.progress)

	first.err = dedup.ErrIdentityChanged
	require.ErrorIs(t, p.Register(t.Context(), said), dedup.ErrIdentityChanged)
	require.ErrorIs(t, p.RecordProgress(t.Context(), progress), dedup.ErrIdentityChanged)
	require.Len(t, second.registered, 2, "the others are told all the same")
}
