package dedup_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

var (
	secretA, secretB = bytes.Repeat([]byte("a"), 32), bytes.Repeat([]byte("b"), 32)
	sealedKey        = dedup.Key{Tenant: "acme", Scope: "pay", Type: "charge", ID: "order-7"}
	plainResult      = dedup.Result{Schema: 3, Data: []byte(`{"card":"4242"}`)}
)

// goldenSealed is plainResult, sealed for sealedKey with secretA.
const goldenSealed = "006964656d010161993d02e0c69d2dd4cb2f684f5d288e5f5e64da0358d84b034b4e49b1a5cbe3d8" +
	"ac2479209f6362cf1bafee"

func keyring(t testing.TB, sealWith string, keys map[string][]byte) *dedup.Keyring {
	t.Helper()
	k, err := dedup.NewKeyring(dedup.KeyringConfig{SealWith: sealWith, Keys: keys})
	require.NoError(t, err)
	return k
}

func TestKeyring_SealsAndOpens_G13(t *testing.T) {
	k := keyring(t, "a", map[string][]byte{"a": secretA})
	for _, data := range [][]byte{{}, []byte("x"), plainResult.Data, make([]byte, 1<<20)} {
		sealed, err := k.Seal(sealedKey, dedup.Result{Schema: 3, Data: data})
		require.NoError(t, err)
		require.Len(t, sealed.Data, len(data)+k.Overhead())
		require.Equal(t, uint32(3), sealed.Schema)
		again, err := k.Seal(sealedKey, dedup.Result{Schema: 3, Data: data})
		require.NoError(t, err)
		require.NotEqual(t, sealed, again, "each seal has a nonce of its own")
		got, err := k.Open(sealedKey, sealed)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got.Data))
	}
	none, err := k.Seal(sealedKey, dedup.Result{})
	require.NoError(t, err)
	require.True(t, none.IsZero(), "no result stays no result")
}

// Golden: a later release opens the results of this one.
func TestKeyring_OpensTheFirstForm(t *testing.T) {
	data, err := hex.DecodeString(goldenSealed)
	require.NoError(t, err)
	got, err := keyring(t, "", map[string][]byte{"a": secretA}).Open(sealedKey,
		dedup.Result{Schema: 3, Data: data})
	require.NoError(t, err)
	require.Equal(t, plainResult, got)
}

func TestKeyring_Refuses_G13(t *testing.T) {
	k := keyring(t, "a", map[string][]byte{"a": secretA})
	sealed, err := k.Seal(sealedKey, plainResult)
	require.NoError(t, err)
	at := func(change func(*dedup.Key)) dedup.Key {
		key := sealedKey
		change(&key)
		return key
	}
	with := func(change func([]byte) []byte) dedup.Result {
		return dedup.Result{Schema: sealed.Schema, Data: change(bytes.Clone(sealed.Data))}
	}
	same := func(b []byte) []byte { return b }
	for name, c := range map[string]struct {
		k      *dedup.Keyring
		key    dedup.Key
		result dedup.Result
		text   string
	}{
		"moved to another tenant": {k, at(func(k *dedup.Key) { k.Tenant = "other" }), sealed, "changed or moved"},
		"moved to another scope":  {k, at(func(k *dedup.Key) { k.Scope = "other" }), sealed, "changed or moved"},
		"moved to another type":   {k, at(func(k *dedup.Key) { k.Type = "other" }), sealed, "changed or moved"},
		"moved to another ID":     {k, at(func(k *dedup.Key) { k.ID = "order-8" }), sealed, "changed or moved"},
		"parts moved": {k, at(func(k *dedup.Key) { k.Tenant, k.Scope = "acmep", "ay" }),
			sealed, "changed or moved"},
		"another schema":     {k, sealedKey, dedup.Result{Schema: 4, Data: sealed.Data}, "changed or moved"},
		"another secret":     {keyring(t, "a", map[string][]byte{"a": secretB}), sealedKey, with(same), "key \"a\" does not fit"},
		"key dropped":        {keyring(t, "b", map[string][]byte{"b": secretB}), sealedKey, with(same), "no key \"a\""},
		"no keyring":         {nil, sealedKey, sealed, "no keyring"},
		"form of the future": {k, sealedKey, with(func(b []byte) []byte { b[5] = 2; return b }), "form is unknown"},
		"longer":             {k, sealedKey, with(func(b []byte) []byte { return append(b, 0) }), "changed or moved"},
		"length of the ID":   {k, sealedKey, with(func(b []byte) []byte { b[6] = 255; return b }), "is cut"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.k.Open(c.key, c.result)
			require.ErrorIs(t, err, dedup.ErrSealed)
			require.ErrorContains(t, err, c.text)
			require.True(t, got.IsZero())
			require.NotContains(t, err.Error(), "4242")
		})
	}
	const mark = 5 // bytes, without which a result counts as unsealed
	for n := mark; n < len(sealed.Data); n++ {
		_, err := k.Open(sealedKey, with(func(b []byte) []byte { return b[:n] }))
		require.ErrorIs(t, err, dedup.ErrSealed, "cut to %d bytes", n)
		_, err = k.Open(sealedKey, with(func(b []byte) []byte { b[n] ^= 1; return b }))
		require.ErrorIs(t, err, dedup.ErrSealed, "byte %d changed", n)
	}
}

func TestKeyring_Unsealed_G13(t *testing.T) {
	var none *dedup.Keyring
	reads := keyring(t, "", map[string][]byte{"a": secretA})
	for name, k := range map[string]*dedup.Keyring{
		"no keyring": none, "opens only": reads,
		"seals": keyring(t, "a", map[string][]byte{"a": secretA}),
	} {
		got, err := k.Open(sealedKey, plainResult)
		require.NoError(t, err, name)
		require.Equal(t, plainResult, got, name)
	}
	for name, k := range map[string]*dedup.Keyring{"no keyring": none, "opens only": reads} {
		got, err := k.Seal(sealedKey, plainResult)
		require.NoError(t, err, name)
		require.Equal(t, plainResult, got, name)
		require.Zero(t, k.Overhead(), name)
	}
	strict, err := dedup.NewKeyring(dedup.KeyringConfig{
		Keys: map[string][]byte{"a": secretA}, SealWith: "a", RefuseUnsealed: true,
	})
	require.NoError(t, err)
	_, err = strict.Open(sealedKey, plainResult)
	require.ErrorIs(t, err, dedup.ErrSealed)
	got, err := strict.Open(sealedKey, dedup.Result{})
	require.NoError(t, err)
	require.True(t, got.IsZero(), "no result is no forgery")
}

func TestNewKeyring_Mistakes(t *testing.T) {
	long := string(make([]byte, 65))
	_, err := dedup.NewKeyring(dedup.KeyringConfig{
		Keys:     map[string][]byte{"": secretA, "short": secretA[:31], long: secretB},
		SealWith: "missing",
	})
	for _, want := range []string{`key ID "" has 0 bytes`, `key "short" has 31 bytes`,
		"has 65 bytes", `SealWith "missing" is not in Keys`} {
		require.ErrorContains(t, err, want)
	}
	_, err = dedup.NewKeyring(dedup.KeyringConfig{RefuseUnsealed: true})
	require.ErrorContains(t, err, "no key is in Keys")
	require.ErrorContains(t, err, "RefuseUnsealed needs SealWith")
}

func TestKeyring_ShowsNoSecret(t *testing.T) {
	cfg := dedup.KeyringConfig{Keys: map[string][]byte{"id-1": secretA}, SealWith: "id-1"}
	k, err := dedup.NewKeyring(cfg)
	require.NoError(t, err)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, text := range []string{fmt.Sprintf(format, cfg), fmt.Sprintf(format, k)} {
			require.Contains(t, text, "id-1")
			require.NotContains(t, text, "aaaa")
			require.NotContains(t, text, "97 97")
			require.NotContains(t, text, "0x61")
		}
	}
	require.Equal(t, "dedup.Keyring[none]", (*dedup.Keyring)(nil).String())
}

// raw returns the result as the store has it.
func raw(t *testing.T, s dedup.Store, key dedup.Key) dedup.Result {
	t.Helper()
	var answers [1]dedup.Answer
	req := dedup.Request{Key: key, Retention: time.Hour, AnyAge: true}
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, []dedup.Request{req},
		answers[:]))
	require.Equal(t, dedup.Done, answers[0].Verdict)
	return answers[0].Result
}

func TestDo_KeyRotation_G13(t *testing.T) {
	store := memstore.New()
	keys := map[string][]byte{"a": secretA, "b": secretB}
	steps := []*dedup.Keyring{
		nil,
		keyring(t, "", map[string][]byte{"a": secretA}),
		keyring(t, "a", map[string][]byte{"a": secretA}),
		keyring(t, "a", keys),
		keyring(t, "b", keys),
		keyring(t, "b", map[string][]byte{"b": secretB}),
	}
	runs := 0
	call := func(k *dedup.Keyring, key dedup.Key) (string, bool, error) {
		g := dedup.NewGuard(store, dedup.GuardConfig{Keyring: k, Rerun: true}) // another process
		defer g.Close()
		return dedup.Do(t.Context(), g, key, func(context.Context) (string, error) {
			runs++
			return "card 4242", nil
		})
	}
	at := func(i, j int) dedup.Key { return dedup.Key{Scope: "pay", ID: fmt.Sprint(i, "-", j)} }
	for i := range steps[1:] {
		for _, pair := range [][2]int{{i, i + 1}, {i + 1, i}} {
			key := at(pair[0], pair[1])
			_, replayed, err := call(steps[pair[0]], key)
			require.NoError(t, err)
			require.False(t, replayed)
			require.Equal(t, pair[0] < 2, bytes.Contains(raw(t, store, key).Data, []byte("4242")))
			got, replayed, err := call(steps[pair[1]], key)
			require.NoError(t, err, "from step %d to %d", pair[0], pair[1])
			require.True(t, replayed)
			require.Equal(t, "card 4242", got)
		}
	}
	// A step that is left out is an error, and no second run.
	before := runs
	for _, k := range []*dedup.Keyring{nil, steps[5]} {
		got, replayed, err := call(k, at(2, 3))
		require.ErrorIs(t, err, dedup.ErrSealed)
		require.NotErrorIs(t, err, dedup.ErrUnavailable)
		require.False(t, replayed)
		require.Empty(t, got)
	}
	require.Equal(t, before, runs)
}

// Callers of one process share the plain result of the run.
func TestDo_KeyringSharesResults(t *testing.T) {
	g := dedup.NewGuard(memstore.New(), dedup.GuardConfig{
		Keyring: keyring(t, "a", map[string][]byte{"a": secretA}),
	})
	defer g.Close()
	began, end := make(chan struct{}), make(chan struct{})
	results := make(chan string, 2)
	run := func() {
		got, _, err := dedup.Do(t.Context(), g, sealedKey, func(context.Context) (string, error) {
			close(began)
			<-end
			return "paid", nil
		})
		if err != nil {
			got = err.Error()
		}
		results <- got
	}
	go run()
	<-began
	go run()
	close(end)
	require.Equal(t, "paid", <-results)
	require.Equal(t, "paid", <-results)
}

// limited is a store that keeps small results only.
type limited struct {
	dedup.Store
	max int
}

func (l *limited) MaxResult() int { return l.max }

func TestDo_SealedSizeCounts(t *testing.T) {
	k := keyring(t, "a", map[string][]byte{"a": secretA})
	for _, c := range []struct{ max, kept int }{{4 + k.Overhead(), 1}, {3 + k.Overhead(), 0}} {
		s := &limited{memstore.New(), c.max}
		g := dedup.NewGuard(s, dedup.GuardConfig{Keyring: k})
		_, _, err := dedup.Do(t.Context(), g, sealedKey, // four bytes of JSON
			func(context.Context) (string, error) { return "ok", nil })
		require.NoError(t, err)
		require.Equal(t, c.kept == 0, raw(t, s, sealedKey).IsZero())
		_, _, err = dedup.Do(t.Context(), g, sealedKey,
			func(context.Context) (string, error) { panic("again") })
		if c.kept == 0 {
			require.ErrorIs(t, err, dedup.ErrNoResult)
		} else {
			require.NoError(t, err)
		}
		g.Close()
	}
}

// A result with another schema in the store must not make the function run under a key of its own.
func TestDo_ChangedSchemaDoesNotRun_G13(t *testing.T) {
	k := keyring(t, "a", map[string][]byte{"a": secretA})
	sealed, err := k.Seal(sealedKey, plainResult)
	require.NoError(t, err)
	store := memstore.New()
	g := dedup.NewGuard(store, dedup.GuardConfig{Keyring: k})
	defer g.Close()
	plain := dedup.NewGuard(store, dedup.GuardConfig{})
	defer plain.Close()
	entry, _, err := plain.Enter(t.Context(), dedup.Call{Key: sealedKey})
	require.NoError(t, err)
	require.NoError(t, entry.Complete(t.Context(), dedup.Result{Schema: 9, Data: sealed.Data}))
	_, _, err = dedup.Do(t.Context(), g, sealedKey,
		func(context.Context) (string, error) { panic("again") })
	require.ErrorIs(t, err, dedup.ErrSealed)
}

func FuzzKeyringOpen_G13(f *testing.F) {
	k := keyring(f, "a", map[string][]byte{"a": secretA, "b": secretB})
	sealed, err := hex.DecodeString(goldenSealed) // the same in each process of the fuzzer
	require.NoError(f, err)
	f.Add(sealed, "order-7", uint32(3))
	f.Add(sealed, "order-8", uint32(3))
	f.Add(sealed[:20], "order-7", uint32(3))
	f.Add([]byte("\x00idem"), "order-7", uint32(1))
	f.Add([]byte("\x00idem\x01\xffa"), "order-7", uint32(1))
	f.Add([]byte(`{"a":1}`), "order-7", uint32(1))
	f.Fuzz(func(t *testing.T, data []byte, id string, schema uint32) {
		key := sealedKey
		key.ID = id
		in := bytes.Clone(data)
		got, err := k.Open(key, dedup.Result{Schema: schema, Data: data})
		require.Equal(t, in, data, "the stored bytes stay")
		own := bytes.Equal(data, sealed) && id == sealedKey.ID && schema == 3
		switch {
		case own:
			require.NoError(t, err)
			require.Equal(t, plainResult, got)
		case bytes.HasPrefix(data, []byte("\x00idem")):
			require.ErrorIs(t, err, dedup.ErrSealed)
			require.True(t, got.IsZero())
		default:
			require.NoError(t, err)
			require.Equal(t, data, got.Data)
		}
	})
}
