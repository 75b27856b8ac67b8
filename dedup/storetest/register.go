package storetest

import (
	"errors"
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// registerTests cover dedup.Registrar. A store may forget the descriptor of a type that a
// registration no longer names, or keep it: both are accepted.
var registerTests = []testCase{
	{name: "register: the same again passes (rule 7)", needs: Register, run: registerAgain},
	{name: "register: new and missing types and topics pass (rule 7)", needs: Register,
		run: registerOthers},
	{name: "register: a changed descriptor is refused (rule 7)", needs: Register,
		run: registerChanged},
	{name: "register: an accepted descriptor is the one on record (rule 7)", needs: Register,
		run: registerAccepted},
	{name: "register: scopes have descriptors of their own (rule 7)", needs: Register,
		run: registerApart},
	{name: "register: topics of other scopes refuse a group without offsets (rule 14)",
		needs: Register, run: registerScopes},
	{name: "register: a refused registration writes nothing (rule 7)", needs: Register,
		run: registerRefused},
	{name: "register: of different ones at once, one is accepted (rule 7)", needs: Register,
		alone: true, run: registerRace},
	{name: "register: a server that is down is unavailable (R-19)", needs: Register,
		run: registerDown},
}

func (k *kit) registrar(s dedup.Store) dedup.Registrar {
	k.Helper()
	r, ok := s.(dedup.Registrar)
	require.True(k, ok, "%T is no dedup.Registrar, and storetest.Register is not in "+
		"Harness.Missing", s)
	return r
}

// consumerOf is the registration of a consumer with these descriptors: type, text, and so on.
func consumerOf(scope string, descriptors ...string) dedup.Registration {
	r := dedup.Registration{Scope: scope, Group: "group of " + scope, Topics: []string{"orders"},
		Descriptors: make(map[string]string)}
	for pair := range slices.Chunk(descriptors, 2) {
		r.Descriptors[pair[0]] = pair[1]
	}
	return r
}

// registers requires both clients to accept r.
func (k *kit) registers(r dedup.Registration) {
	k.Helper()
	require.NoError(k, k.registrar(k.s).Register(k.ctx, r))
	require.NoError(k, k.registrar(k.peer).Register(k.ctx, r), "the same again")
}

// refuses requires an error about r, which the caller can tell from an outage.
func (k *kit) refuses(want error, r dedup.Registration) {
	k.Helper()
	for _, s := range []dedup.Store{k.s, k.peer} {
		err := k.registrar(s).Register(k.ctx, r)
		require.ErrorIs(k, err, want)
		require.NotErrorIs(k, err, dedup.ErrUnavailable, "a consumer would wait for ever")
		if !errors.Is(want, dedup.ErrIdentityChanged) {
			require.NotErrorIs(k, err, dedup.ErrIdentityChanged)
			continue
		}
		require.NotErrorIs(k, err, dedup.ErrOtherScope)
		var changed *dedup.IdentityChangedError
		if errors.As(err, &changed) {
			require.NotEmpty(k, changed.Types)
			require.True(k, slices.IsSorted(changed.Types), "%q", changed.Types)
		}
	}
}

func registerAgain(k *kit) {
	r := consumerOf("orders", "order.created", "header id", "order.paid", "field /id; tenant /t",
		"Order.Paid", "another type", "", "{{ any: 'text', of %s any form }}")
	r.Topics = []string{"b", "a", "c"}
	k.registers(r)
	r.Topics = []string{"c", "b", "a"}
	k.registers(r)
	r.NoOffsets = true // the topics are known under this scope
	r.Group = "another group"
	k.registers(r)
	r.NoOffsets, r.AcceptNewIdentity, r.NewScope = false, true, true
	k.registers(r)
	k.registers(consumerOf("nothing yet"))
	k.registers(dedup.Registration{Scope: "no topics"})
}

func registerOthers(k *kit) {
	k.registers(consumerOf("orders", "a", "id of a", "b", "id of b"))
	r := consumerOf("orders", "a", "id of a", "c", "id of c")
	r.Topics = []string{"payments"}
	k.registers(r)
	k.refuses(dedup.ErrIdentityChanged, consumerOf("orders", "c", "another id"))
	k.registers(consumerOf("orders", "b", "id of b", "c", "id of c"))
}

func registerChanged(k *kit) {
	first := consumerOf("orders", "a", "header id", "b", "header id")
	k.registers(first)
	for _, r := range []dedup.Registration{
		consumerOf("orders", "a", "header id", "b", "header ID"),
		consumerOf("orders", "a", "header id ", "b", "header id"),
		consumerOf("orders", "b", ""),
		consumerOf("orders", "0", "new", "a", "field /id", "c", "new"),
	} {
		k.refuses(dedup.ErrIdentityChanged, r)
		k.registers(first)
		r.Group, r.Topics, r.NewScope = "other", []string{"other"}, true
		k.refuses(dedup.ErrIdentityChanged, r)
	}
	var changed *dedup.IdentityChangedError
	err := k.registrar(k.s).Register(k.ctx, consumerOf("orders", "a", "header id", "b", "field /id"))
	if errors.As(err, &changed) {
		require.Equal(k, []string{"b"}, changed.Types)
	}
}

func registerAccepted(k *kit) {
	older, newer := consumerOf("orders", "a", "older"), consumerOf("orders", "a", "newer")
	k.registers(older)
	k.refuses(dedup.ErrIdentityChanged, newer)
	newer.AcceptNewIdentity = true
	k.registers(newer)
	newer.AcceptNewIdentity = false
	k.registers(newer)
	k.refuses(dedup.ErrIdentityChanged, older)
}

func registerApart(k *kit) {
	scopes := []string{"orders", "Orders", "orders.a", "orders:a", "%"}
	for range 2 {
		for _, scope := range scopes {
			k.registers(consumerOf(scope, "a", "id of "+scope, "a:a", "another type"))
		}
	}
	for _, scope := range scopes {
		k.refuses(dedup.ErrIdentityChanged, consumerOf(scope, "a", "changed"))
	}
}

func registerScopes(k *kit) {
	k.registers(consumerOf("orders", "a", "id"))
	second := consumerOf("renamed", "a", "id")
	second.Topics, second.NoOffsets = []string{"new", "orders"}, true
	k.refuses(dedup.ErrOtherScope, second)
	elsewhere := second
	elsewhere.Topics = []string{"new", "Orders"}
	k.registers(elsewhere)
	k.refuses(dedup.ErrOtherScope, second)
	third := second
	third.Scope, third.NoOffsets = "third", false // a group with offsets is known to Kafka
	k.registers(third)
	second.NewScope = true
	k.registers(second)
	second.NewScope = false
	k.registers(second) // known under its own scope too
	k.registers(consumerOf("orders", "a", "id"))
}

// registerRefused: The consumer of before must start again, and no word of the refused one counts.
func registerRefused(k *kit) {
	first := consumerOf("orders", "a", "id of a", "z", "id of z")
	k.registers(first)
	refused := consumerOf("orders", "0", "refused", "a", "id of a", "m", "refused", "z", "refused")
	refused.Topics = []string{"orders", "refused"}
	k.refuses(dedup.ErrIdentityChanged, refused)
	stranger := consumerOf("stranger")
	stranger.Topics, stranger.NoOffsets = []string{"refused"}, true
	k.registers(stranger) // the topic is not known under "orders"
	// The next registration may make a store forget types, so this one comes first.
	k.registers(consumerOf("orders", "0", "id of 0", "a", "id of a", "m", "id of m",
		"z", "id of z"))
	k.registers(first)

	renamed := consumerOf("renamed", "a", "refused")
	renamed.NoOffsets, renamed.Topics = true, []string{"another", "orders"}
	k.refuses(dedup.ErrOtherScope, renamed)
	k.registers(first)
	other := consumerOf("renamed", "a", "id of a")
	other.Topics = []string{"known"}
	k.registers(other)
	renamed.Descriptors = other.Descriptors
	k.refuses(dedup.ErrOtherScope, renamed)
	stranger.Scope, stranger.Topics = "another stranger", []string{"another"}
	k.registers(stranger)
}

func registerRace(k *kit) {
	const racers = 6
	for round := range 5 {
		scope := numbered("scope", round)
		errs := inParallel(racers, func(i int) error {
			r := k.registrar([]dedup.Store{k.s, k.peer}[i%2])
			return r.Register(k.ctx, consumerOf(scope, "a", numbered("id", i)))
		})
		accepted := -1
		for i, err := range errs {
			if err == nil {
				require.Negative(k, accepted, "two descriptors of one type are accepted")
				accepted = i
				continue
			}
			require.ErrorIs(k, err, dedup.ErrIdentityChanged)
		}
		require.GreaterOrEqual(k, accepted, 0, "the first one is accepted")
		k.registers(consumerOf(scope, "a", numbered("id", accepted)))
	}
}

func registerDown(k *kit) {
	if k.h.lacks(Outage) {
		k.Skip("missing in the harness: outage")
	}
	r := consumerOf("orders", "a", "id")
	for _, r.NoOffsets = range []bool{false, true} {
		err := k.registrar(k.h.Down(k)).Register(k.ctx, r)
		require.ErrorIs(k, err, dedup.ErrUnavailable)
		require.NotErrorIs(k, err, dedup.ErrIdentityChanged)
		require.NotErrorIs(k, err, dedup.ErrOtherScope)
	}
}
