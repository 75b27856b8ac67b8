package pgstore

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rule 28: the IDs that are kept raw, and the IDs that are hashed.
func TestCompactIDForms_Rule28(t *testing.T) {
	t.Parallel()
	const uuid, ulid = "018bcfe5-6800-7abc-8def-0123456789ab", "01HF7YAT00E9ZV3R5KXQ2M8WBC"
	for id, want := range map[string]idForm{
		uuid: formUUID, ulid: formULID, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ": formULID, "00000000000000000000000000": formULID,
		strings.ToUpper(uuid): formHash, "urn:uuid:" + uuid: formHash, "{" + uuid + "}": formHash,
		strings.ReplaceAll(uuid, "-", ""): formHash, " " + uuid[1:]: formHash, uuid[:35] + "g": formHash,
		uuid[:8] + "0" + uuid[9:]: formHash, // a digit where a hyphen must be
		strings.ToLower(ulid):     formHash, "8" + ulid[1:]: formHash, "Z" + ulid[1:]: formHash,
		strings.Replace(ulid, "0", "O", 1): formHash, strings.Replace(ulid, "1", "I", 1): formHash,
		strings.Replace(ulid, "1", "L", 1): formHash, ulid[:25] + "U": formHash,
		"": formHash, "order-12345": formHash, ulid + "0": formHash,
	} {
		form, b := compactID(id)
		require.Equal(t, want, form, id)
		text, ok := compactText(form, b)
		require.Equal(t, want != formHash, ok, id)
		if ok {
			require.Equal(t, id, text)
		}
	}
}

// Rule 28: two IDs never share form and bytes, however alike they are.
func TestCompactIDIsInjective_Rule28(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 28))
	type row struct {
		form  idForm
		bytes [16]byte
	}
	seen := make(map[row]string)
	add := func(id string) {
		form, b := compactID(id)
		if other, ok := seen[row{form, b}]; ok && other != id {
			t.Fatalf("%q and %q are one row", id, other)
		}
		seen[row{form, b}] = id
		if text, ok := compactText(form, b); ok {
			require.Equal(t, id, text)
		}
	}
	for range 20_000 {
		var b [16]byte
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		for _, id := range []string{uuidText(b), ulidText(b)} {
			add(id)
			for _, other := range []string{strings.ToUpper(id), strings.ToLower(id), "{" + id + "}", strings.ReplaceAll(id, "-", "")} {
				add(other)
			}
			changed := []byte(id) // one byte, to anything
			changed[r.IntN(len(changed))] = byte(r.Uint32())
			add(string(changed))
		}
		add(string(b[:])) // the bytes themselves are an ID too
		_, sum := compactID(string(b[:]))
		add(uuidText(sum)) // an ID forged to look like the hash of another
		add(ulidText(sum))
	}
}

// Time-ordered IDs stay in their order.
func TestCompactIDKeepsOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	random := func() (b [16]byte) {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	for range 10_000 {
		x, y := random(), random()
		if r.IntN(2) == 0 {
			y = x
			y[r.IntN(16)]++
		}
		for _, text := range []func([16]byte) string{uuidText, ulidText} {
			_, bx := compactID(text(x))
			_, by := compactID(text(y))
			require.Equal(t, strings.Compare(text(x), text(y)), bytes.Compare(bx[:], by[:]))
		}
	}
}

func FuzzCompactID(f *testing.F) {
	f.Add("01HF7YAT00E9ZV3R5KXQ2M8WBC")
	f.Add("018bcfe5-6800-7abc-8def-0123456789ab")
	f.Fuzz(func(t *testing.T, id string) {
		form, b := compactID(id)
		if text, ok := compactText(form, b); ok && text != id {
			t.Fatalf("%q became %q", id, text)
		}
	})
}
