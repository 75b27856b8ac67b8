package schemaregistry

import (
	"fmt"
	"io"
	"net/http"
)

// maxAnswer limits the bytes of one answer of the registry.
const maxAnswer = 16 << 20

// refuseRedirect keeps the credentials at the addresses of [Config].URLs.
func refuseRedirect(req *http.Request, _ []*http.Request) error {
	return fmt.Errorf("the answer is %s, and redirects are not followed", req.Response.Status)
}

// limited is a transport that ends answers with an error after maxAnswer.
type limited struct{ base http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (l limited) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.base.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("schema registry: %w", err)
	}
	resp.Body = &limitedBody{ReadCloser: resp.Body, left: maxAnswer}
	return resp, nil
}

type limitedBody struct {
	io.ReadCloser
	left int64
}

// Read implements [io.Reader].
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return n, err //nolint:wrapcheck // io.EOF must stay as it is
}
