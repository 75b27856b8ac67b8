package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/idem-go/idem/idemtype"
	"github.com/stretchr/testify/require"
)

// slowMember is member by encoding/json.
func slowMember(data []byte, name string) (found json.RawMessage, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, idemtype.ErrNotFound
	}
	for n := 0; dec.More(); {
		key, err := dec.Token()
		if err != nil {
			return nil, idemtype.ErrNotFound
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, idemtype.ErrNotFound
		}
		if key == name {
			if n++; n > 1 {
				return nil, idemtype.ErrAmbiguous
			}
			found = raw
		}
	}
	if _, err := dec.Token(); err != nil || found == nil {
		return nil, idemtype.ErrNotFound
	}
	return found, nil
}

func FuzzJSONMember(f *testing.F) {
	for _, s := range []string{
		`{"id":"x"}`, ` { "a" : [1,{"id":2}] , "id" : -0.5e+10 } trailing`, `{"id":1,"id":2}`, `{"\u0069d":1}`, `{"id":"a\"b\\"}`, `{}`, `[]`, ``,
		`{"id":`, `{"id":1,}`, `{"id":01}`, `{"id":tru}`, `{"id":null}`, "{\"id\":\"\x01\"}", "{\"i\xffd\":1}", `{"a":{},"b":[],"id":{"id":[]}}`, `{"id":"x"`, `{,}`, `{"id" 1}`,
		`{"id":1 "b":2}`, `{"id":"\u12g4"}`, `{"id":-}`, `{"id":1.}`, `{"id":1e}`, `{"a":"é","id":"ü"}`,
	} {
		f.Add([]byte(s), "id")
	}
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		want, wantErr := slowMember(data, name)
		got, err := member(data, name)
		if errors.Is(wantErr, idemtype.ErrAmbiguous) {
			// It may be invalid behind the second one, where the slow one does not look.
			require.Error(t, err)
			return
		}
		require.Equal(t, wantErr == nil, err == nil, "%v, %v", wantErr, err)
		require.Equal(t, string(want), string(got))
	})
}
