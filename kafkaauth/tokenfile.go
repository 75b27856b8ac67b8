package kafkaauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// maxFile bounds files with tokens, keys and certificates, in bytes.
const maxFile = 1 << 20

// TokenFile returns a source that reads the token from a regular file at each call, without white
// space around it. So a new token counts at once, such as one that Kubernetes projects into the
// file. The end of a JSON Web Token is known from the token itself.
//
// A missing, empty or unreadable file and an expired token are outages: the writer of the file may
// be late. No error repeats the contents of the file.
func TokenFile(path string) TokenSource {
	return func(ctx context.Context) (Token, error) {
		if err := ctx.Err(); err != nil {
			return Token{}, fmt.Errorf("token file: %w", context.Cause(ctx))
		}
		data, err := readFile(path)
		if err != nil {
			return Token{}, fmt.Errorf("token file: %w", err)
		}
		token := Token{Value: strings.TrimSpace(string(data))}
		if err := token.Check(); err != nil {
			return Token{}, fmt.Errorf("token file %s: %w", path, err)
		}
		token.Expires = jwtExpiry(token.Value)
		if !token.Expires.IsZero() && !token.Expires.After(time.Now()) {
			return Token{}, fmt.Errorf("token file %s: the token has expired at %s",
				path, token.Expires.UTC().Format(time.RFC3339))
		}
		return token, nil
	}
}

// readFile reads a small regular file. Opening a pipe would wait for a writer.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: %w", path, errLarge)
	}
	return data, nil
}

var errLarge = errors.New("larger than 1 MiB")
