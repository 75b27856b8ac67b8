package dedup_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// G-14: identities and idempotency keys are 122 bits of SHA-256 over parts that are joined
// injectively. Another hash would change them, and let attackers collide them if it were weak.
func TestHashesAreSHA256_G14(t *testing.T) {
	uuid := func(text string) string {
		u := sha256.Sum256([]byte(text))
		u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
		return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
	}
	require.Equal(t, uuid("a:b"), dedup.Hash("a", "b"))
	require.Equal(t, uuid("a%3Ab"), dedup.Hash("a:b"))
	k := dedup.Key{Scope: "g", Tenant: "t", Type: "paid", ID: "7"}
	plain := k
	plain.Scope = ""
	require.Equal(t, uuid(plain.String()), k.UUID())
	require.Equal(t, uuid(plain.String()+":charge:b%3Ac"), k.UUID("charge", "b:c"))
}
