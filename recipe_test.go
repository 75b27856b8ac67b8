package idem

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

func ownID(m *Message) (string, error) { return strings.ToLower(string(m.Key)), nil }

type ownFinder struct{}

func (*ownFinder) find(m *Message) (string, error) { return ownID(m) }

func (f *ownFinder) make() IDFunc {
	return func(m *Message) (string, error) { return f.find(m) }
}

func ownWithField(field string) IDFunc {
	inner := FromJSON(field)
	return func(m *Message) (string, error) { return inner(m) }
}

func ownGeneric[T ~string](field T) IDFunc {
	return func(m *Message) (string, error) { panic("must not be called: there is no event") }
}

var ownGlobal IDFunc = func(m *Message) (string, error) { return "", errors.New("no") }

// TestRecipe_Golden_Rule7: these words are in the stores of users. One that changes here stops their consumers.
func TestRecipe_Golden_Rule7(t *testing.T) {
	for want, f := range map[string]IDFunc{
		`standard-id/2`:                             StandardID(),
		`standard-id/1`:                             LegacyStandardID(),
		`standard-type/1`:                           StandardType(),
		`header("ce_id")`:                           FromHeader("ce_id"),
		`header("a, \"b\"\x00")`:                    FromHeader("a, \"b\"\x00"),
		`key`:                                       FromKey(),
		`value`:                                     FromValue(),
		`json("order.id")`:                          FromJSON("order.id"),
		`fixed("charge")`:                           Fixed("charge"),
		`described("my own, v2")`:                   Described("my own, v2", ownID),
		`described("joined")`:                       Described("joined", Joined(FromKey())),
		`described/2("standard")`:                   Described("standard", StandardID()),
		`first(standard-id/2)`:                      FirstOf(StandardID()),
		`first(joined(key), joined(value))`:         FirstOf(Joined(FromKey()), Joined(FromValue())),
		`first/2(standard-id/2, key)`:               FirstOf(StandardID(), FromKey()),
		`first/2(joined(key, value), header("id"))`: FirstOf(Joined(FromKey(), FromValue()), FromHeader("id")),
		`first/2(described("d"), func github.com/idem-go/idem.ownID)`: FirstOf(Described("d", Hashed(FromKey())), ownID),
		`first(joined(key), header("id"))`:                            LegacyFirstOf(Joined(FromKey()), FromHeader("id")),
		`first(standard-id/1, key)`:                                   FirstOf(LegacyStandardID(), FromKey()),
		`first(header("id"), json("id"))`:                             FirstOf(FromHeader("id"), FromJSON("id")),
		`joined(json("a"), first(key, value), fixed("x"))`:            Joined(FromJSON("a"), FirstOf(FromKey(), FromValue()), Fixed("x")),
		`hashed(func github.com/idem-go/idem.ownID, key)`:             Hashed(ownID, FromKey()),
		`first()`:                            FirstOf(),
		`func github.com/idem-go/idem.ownID`: ownID,
		`func github.com/idem-go/idem.(*ownFinder).find`:               new(ownFinder).find,
		`func github.com/idem-go/idem.make literal`:                    new(ownFinder).make(),
		`func github.com/idem-go/idem.ownWithField literal`:            ownWithField("order_id"),
		`func github.com/idem-go/idem.ownGeneric literal`:              ownGeneric("order_id"),
		`func github.com/idem-go/idem.TestRecipe_Golden_Rule7 literal`: func(m *Message) (string, error) { return FromKey()(m) },
	} {
		require.Equal(t, want, recipeWord(f))
	}
	require.Equal(t, "nil", recipeWord(nil))
	require.Contains(t, recipeWord(ownGlobal), "literal")

	s := newSettings([]Option{ID(FromJSON("payment_id"))})
	require.Equal(t, `type=standard-type/1 id=json("payment_id")`, s.recipe(false))
	s = newSettings([]Option{Type(Fixed("paid")), Tenant(FromHeader("tenant"))})
	require.Equal(t, `type=fixed("paid") id=standard-id/2 tenant=header("tenant")`, s.recipe(false))
}

// TestStableName: what a compiler adds to the name of a function literal is not part of a recipe: an upgrade of Go must
// not stop a consumer.
func TestStableName(t *testing.T) {
	for name, want := range map[string]string{
		"main.paymentID": "main.paymentID",
		"example.com/shop.v2/ids.(*Finder).ID-fm":      "example.com/shop.v2/ids.(*Finder).ID",
		"example.com/shop/ids.Finder.ID-fm":            "example.com/shop/ids.Finder.ID",
		"main.newRouter.func1":                         "main.newRouter literal",
		"main.newRouter.func12.3":                      "main.newRouter literal",
		"main.main.newRouter.func1":                    "main.newRouter literal", // inlined
		"main.run.newRouter.fromField.func2":           "main.fromField literal",
		"main.fromField.func1":                         "main.fromField literal",
		"main.fromField[...].func1":                    "main.fromField literal",
		"main.fromField[go.shape.string].func1.1":      "main.fromField literal",
		"example.com/shop.v2/ids.(*Finder).Make.func1": "example.com/shop.v2/ids.Make literal",
		"main.init.func1":                              "main.init literal",
		"main.glob..func1":                             "main.glob literal",
	} {
		require.Equal(t, want, stableName(name), name)
	}
}

// TestRecipe_Free: a look-up pays nothing for being able to tell.
func TestRecipe_Free(t *testing.T) {
	m := &Message{Key: []byte("k")}
	f := Fixed("x")
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = f(m) }))
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
