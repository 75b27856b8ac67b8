package redact

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// G-04: secrets are removed from errors of other libraries.
func TestText_G04(t *testing.T) {
	var s Secrets
	s.AddURL("postgres://idem:p%40ss%2Fword@host/db?sslpassword=another-one")
	s.Add("", "short", "canary-4711", "canary-4711-longer")
	for text, want := range map[string]string{
		"login with p@ss/word failed":             "login with xxxxx failed",
		"as written: p%40ss%2Fword":               "as written: xxxxx",
		"key another-one":                         "key xxxxx",
		"SASL user alice canary-4711-longer":      "SASL user alice xxxxx",
		"a short word":                            "a short word",
		"dial redis://u:whatever@host:6379/0 now": "dial redis://u:xxxxx@host:6379/0 now",
		"redis://:what:ever@host:6379/0":          "redis://:xxxxx@host:6379/0",
		"as masked: postgres://u:xxxxx@host/db":   "as masked: postgres://u:xxxxx@host/db",
		"host=h password=geheim dbname=d":         "host=h password=xxxxx dbname=d",
		"host=h password='ge heim' dbname=d":      "host=h password=xxxxx dbname=d",
		"postgres 127.0.0.1:5432/db":              "postgres 127.0.0.1:5432/db",
		"see https://example.com/a:b":             "see https://example.com/a:b",
	} {
		require.Equal(t, want, s.Text(text))
	}
}

func TestHasPassword_G04(t *testing.T) {
	for _, url := range []string{
		"postgres://u:p@host/db", "postgres://host/db?user=u&password=p",
		"postgres://host/db?sslpassword=p", "redis://:p@host:6379/0", "redis+cluster://u:p@a:1,b:2",
		"u:p@host", "postgres://u:4711/canary@host/db",
		"host=h user=u password=p dbname=d", "password = 'p p' host=h", "host=h sslpassword=p",
		"host=/tmp/a://b password=p",
	} {
		require.True(t, HasPassword(url), url)
	}
	for _, url := range []string{"", "postgres://u@host:5432/db", "postgres:///db?host=/tmp",
		"redis://host:6379/0", "redis://u:@host:6379", "postgres://host/db?password=",
		"host=h user=u", "host=h password='' dbname=d", "host=h passfile=/run/p",
		"postgres://host/db?application_name=password=x",
	} {
		require.False(t, HasPassword(url), url)
	}
}

// G-04: a password that is not percent-encoded stands where a port, a path or a parameter would be.
func TestSplitsPassword_G04(t *testing.T) {
	for _, url := range []string{
		"postgres://u:4711/canary@host:5432/db", "postgres://u:4711#canary@host/db",
		"postgres://u:4711?canary@host/db",
		"postgres://u:p@ss/canary@host/db", "postgres://u:p@ss@host/db",
		"redis://u:pa/ss@host:6379/0", "redis://:pa?x=1&ss@host",
		"rediss+cluster://u:pa#ss@a:1,b:2",
	} {
		require.True(t, SplitsPassword(url), url)
	}
	for _, url := range []string{
		"", "host", "u:canary@host", "postgres://host/db",
		"postgres://u:p@host:5432/db?sslmode=disable", "postgres://u:p%2Fp@host/db",
		"redis://u:p@ss@host/0", "postgres://host:5432/db?user=u@tenant&password=a@b",
		"redis://u:p@a:1,b:2/0?client_name=me@here",
		"redis://host#x", "postgres:///db?host=/tmp",
	} {
		require.False(t, SplitsPassword(url), url)
	}
}
