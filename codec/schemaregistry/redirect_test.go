package schemaregistry_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/schemaregistry"
)

// A redirect would take the credentials to another address, perhaps without TLS. It is no answer of
// the registry, so events wait.
func TestRedirect(t *testing.T) {
	var followed atomic.Int32
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(plain.Close)
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				asked.Add(1)
				http.Redirect(w, req, plain.URL+req.URL.Path, code)
			}))
			t.Cleanup(server.Close)
			registry := open(t, server.URL, func(c *schemaregistry.Config) {
				c.TLS = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
				c.TLS.MinVersion = tls.VersionTLS12
				c.Username, c.Password = "user", "secret"
			})
			e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "s", Schema: `"string"`, Register: true})
			require.NoError(t, err)
			_, encodeErr := e.Encode(t.Context(), "text") // a POST
			for _, err := range []error{
				encodeErr, registry.Decode(t.Context(), record("e1", "paid", 1, []byte("\x00\x00\x00\x00\x07")), new(any)),
			} {
				require.ErrorContains(t, err, http.StatusText(code)+", and redirects are not followed")
				require.NotContains(t, err.Error(), "secret")
				require.Equal(t, "unavailable", idem.ErrorMark(err))
			}
			require.Error(t, registry.Ping(t.Context()))
			require.EqualValues(t, 3, asked.Load())
			require.Zero(t, followed.Load())
		})
	}
}
