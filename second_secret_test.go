package idem_test

import (
	"bytes"
	"testing"

	"github.com/idem-go/idem"
	"github.com/stretchr/testify/require"
)

// G-08: a secret changes step by step, and no step turns a copy into a conflict.
func TestSecondSecret_Rotation_G08(t *testing.T) {
	older, newer := bytes.Repeat([]byte("o"), 16), bytes.Repeat([]byte("n"), 16)
	for name, fingerprint := range map[string]func(secret []byte) idem.Option{
		"Fingerprint":   func(s []byte) idem.Option { return idem.Fingerprint(s, "amount") },
		"FingerprintOf": func(s []byte) idem.Option { return idem.FingerprintOf(s, idem.FromJSON("amount")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				deployed := map[string][]idem.Option{
					"older":           {fingerprint(older)},
					"older and newer": {idem.SecondSecret(newer), fingerprint(older)},
					"newer and older": {fingerprint(newer), idem.SecondSecret(older)},
					"newer":           {fingerprint(newer)},
				}
				offset, id := int64(0), ""
				handle := func(deploy string, amount int) {
					offset++
					r := idem.NewRouter()
					idem.On(r, "paid", succeed, deployed[deploy]...)
					b.router = r
					require.NoError(t, b.start().Handle(t.Context(), paying(id, offset, amount)))
					b.p.Close()
				}
				steps := []string{"older", "older and newer", "newer and older", "newer"}
				for i := range steps[1:] {
					for j, pair := range [][2]string{{steps[i], steps[i+1]}, {steps[i+1], steps[i]}} {
						id = string(rune('a'+i)) + string(rune('a'+j))
						handle(pair[0], 7)
						done, other := b.count("claim: done"), b.count("claim: conflict")
						handle(pair[1], 7)
						require.Equal(t, done+1, b.count("claim: done"), "%v", pair)
						require.Equal(t, other, b.count("claim: conflict"), "%v", pair)
						handle(pair[1], 8)
						require.Equal(t, other+1, b.count("claim: conflict"), "%v", pair)
					}
				}
				// Without the step between, every copy would be a conflict.
				id = "z"
				handle("older", 7)
				other := b.count("claim: conflict")
				handle("newer", 7)
				require.Equal(t, other+1, b.count("claim: conflict"))
			})
		})
	}
}
