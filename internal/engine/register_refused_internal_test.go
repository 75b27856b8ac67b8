package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// A refusal has the command with the scope, the topics, and the types that the store names.
func TestWithCommand(t *testing.T) {
	r := &dedup.Registration{
		Scope: "it's", Group: "g", Topics: []string{"a", "b"},
		Descriptors: map[string]string{"paid": `id=header("x")`, "sold": "id=key"},
	}
	changed := fmt.Errorf("%w: type \"paid\"", dedup.ErrIdentityChanged)
	for _, c := range []struct {
		err  error
		want string
	}{
		{&dedup.IdentityChangedError{Types: []string{"paid"}, Err: changed}, `idem scope accept --new-identity --scope 'it'\''s' --type 'paid' --descriptor 'id=header("x")'`},
		{changed, `idem scope accept --new-identity --scope 'it'\''s' --type 'paid' --descriptor 'id=header("x")'` +
			` --type 'sold' --descriptor 'id=key'`},
	} {
		err := withCommand(c.err, r)
		require.ErrorIs(t, err, dedup.ErrIdentityChanged)
		var refused *registerRefusal
		require.ErrorAs(t, err, &refused)
		require.Equal(t, c.want, refused.Command())
		require.NotContains(t, err.Error(), "idem scope")
	}
	err := withCommand(dedup.ErrOtherScope, r)
	var refused *registerRefusal
	require.ErrorAs(t, err, &refused)
	require.Equal(t, `idem scope create --scope 'it'\''s' --group 'g' --topic 'a' --topic 'b'`, refused.Command())
	other := errors.New("down")
	require.Equal(t, other, withCommand(other, r))
	require.NoError(t, withCommand(nil, r))
}
