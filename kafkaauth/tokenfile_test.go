package kafkaauth

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// Kubernetes swaps a symbolic link to a directory with the new token.
func TestTokenFile_ProjectedAnew(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"1", "2"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, n), 0o700))
		write(t, filepath.Join(dir, n, "token"), "token-"+n+"\n")
	}
	link := filepath.Join(dir, "data")
	require.NoError(t, os.Symlink("1", link))
	source := TokenFile(filepath.Join(link, "token"))
	require.Equal(t, "token-1", value(t, source))
	require.NoError(t, os.Symlink("2", link+".new"))
	require.NoError(t, os.Rename(link+".new", link))
	require.Equal(t, "token-2", value(t, source))
}

func TestTokenFile_Contents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	source := TokenFile(path)
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	write(t, path, " "+jwt(fmt.Sprintf(`{"exp":%d.5}`, end.Unix()))+"\r\n")
	token, err := source(t.Context())
	require.NoError(t, err)
	require.True(t, end.Equal(token.Expires), token)

	for text, want := range map[string]string{
		"":                           "is empty",
		"\n\n":                       "is empty",
		canary + "\n" + canary:       "0x0a",
		jwt(`{"exp":1700000000}`):    "has expired at 2023-11-14T22:13:20Z",
		strings.Repeat("a", 1<<20+1): "larger than 1 MiB",
	} {
		write(t, path, text)
		_, err := source(t.Context())
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, path)
		require.NotErrorIs(t, err, ErrRefused)
		require.NotContains(t, err.Error(), canary)
	}
	for _, opaque := range []string{"a.b", "a.b.c", jwt(`{}`), jwt(`{"exp":"soon"}`), jwt(`{"exp":-1}`), jwt(`{"exp":1e300}`), jwt(`[]`)} {
		write(t, path, opaque)
		token, err := source(t.Context())
		require.NoError(t, err)
		require.Equal(t, Token{Value: opaque}, token)
	}
	require.NoError(t, os.Remove(path))
	_, err = source(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = TokenFile(t.TempDir())(t.Context())
	require.ErrorContains(t, err, "no regular file")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = source(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
