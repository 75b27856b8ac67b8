package main

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A probe is answered, and its reason redacted, while a store is opened and its password added. The
// race detector finds a mistake.
func TestSecretsOfConcurrentUse_G04(t *testing.T) {
	a := new(app)
	var both sync.WaitGroup
	both.Go(func() {
		for i := range 100 {
			a.secrets.Add(fmt.Sprint("password-", i))
			a.secrets.AddURL(fmt.Sprintf("postgres://idem:secret-of-%d@db/shop", i))
		}
	})
	both.Go(func() {
		for range 100 {
			a.redact("no password-1 here")
		}
	})
	both.Wait()
	require.Equal(t, "xxxxx xxxxx", a.redact("password-99 secret-of-99"))
}
