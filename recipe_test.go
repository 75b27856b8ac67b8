package idem

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

func ownID(m *Message) (string, error) { return strings.ToLower(string(m.Key)), nil }

// TestRecipe_Golden_Rule7: these words are in the stores of users. One that changes here stops their consumers.
func TestRecipe_Golden_Rule7(t *testing.T) {
	for want, f := range map[string]Extractor{
		`standard-id/2`:                     StandardID(),
		`standard-id/1`:                     LegacyStandardID(),
		`standard-type/1`:                   StandardType(),
		`header("ce_id")`:                   FromHeader("ce_id"),
		`header("a, \"b\"\x00")`:            FromHeader("a, \"b\"\x00"),
		`key`:                               FromKey(),
		`value`:                             FromValue(),
		`json("order.id")`:                  FromJSON("order.id"),
		`fixed("charge")`:                   Fixed("charge"),
		`described("my own, v2")`:           FromFunc("my own, v2", ownID),
		`first(standard-id/2)`:              FirstOf(StandardID()),
		`first(joined(key), joined(value))`: FirstOf(Joined(FromKey()), Joined(FromValue())),
		`first/2(standard-id/2, key)`:       FirstOf(StandardID(), FromKey()),
		`first/2(joined(key, value), header("id"))`:        FirstOf(Joined(FromKey(), FromValue()), FromHeader("id")),
		`first(joined(key), header("id"))`:                 LegacyFirstOf(Joined(FromKey()), FromHeader("id")),
		`first(standard-id/1, key)`:                        FirstOf(LegacyStandardID(), FromKey()),
		`first(header("id"), json("id"))`:                  FirstOf(FromHeader("id"), FromJSON("id")),
		`joined(json("a"), first(key, value), fixed("x"))`: Joined(FromJSON("a"), FirstOf(FromKey(), FromValue()), Fixed("x")),
		`first()`: FirstOf(),
	} {
		require.Equal(t, want, f.String())
	}

	s := newSettings([]Option{ID(FromJSON("payment_id"))})
	require.Equal(t, `type=standard-type/1 id=json("payment_id")`, s.recipe(false))
	s = newSettings([]Option{Type(Fixed("paid")), Tenant(FromHeader("tenant"))})
	require.Equal(t, `type=fixed("paid") id=standard-id/2 tenant=header("tenant")`, s.recipe(false))
}

// registry is a store that notes what it is told.
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

// TestProcessor_Register_Rule14: each store learns of the scopes and recipes that it keeps, and of no others.
func TestProcessor_Register_Rule14(t *testing.T) {
	first, second, third := newRegistry(), newRegistry(), memstore.New(memstore.Volatile())
	r := NewRouter()
	none := func(context.Context, Event[int]) error { return nil }
	On(r, "a", none, ID(FromKey()))
	On(r, "b", none, Scope("old-group"))
	On(r, "c", none, Store(second), Tenant(FromHeader("tenant")))
	On(r, "d", none, Store(third))
	On(r, "a", none, Type(FromHeader("kind")))
	p, err := NewProcessor(r, Config{Store: first, Scope: "s", Group: "g"})
	require.NoError(t, err)
	defer p.Close()

	said := dedup.Registration{Topics: []string{"t"}, NoOffsets: true, NewScope: true, AcceptNewIdentity: true}
	require.NoError(t, p.Register(t.Context(), said))
	said.Group, said.Scope = "g", "old-group"
	said.Recipes = map[string]string{"b": "type=standard-type/1 id=standard-id/2"}
	require.Equal(t, said, first.registered[0])
	said.Scope = "s"
	said.Recipes = map[string]string{"a": `type=header("kind") id=standard-id/2 | type=standard-type/1 id/2=key`}
	require.Equal(t, said, first.registered[1])
	said.Recipes = map[string]string{"c": `type=standard-type/1 id=standard-id/2 tenant=header("tenant")`}
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
