package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A connection is judged as its driver makes it, by all addresses (G-07).
func TestExamine_StoreTLS(t *testing.T) {
	type row struct {
		url  string
		want Verdict
		says string
	}
	const plain, fallBack, unproven = "unencrypted", "fall back", "not verified"
	for _, c := range []row{
		{"mysql://u@h/shop?tls=0", Warn, plain}, {"mysql://u@h/shop?tls=False", Warn, plain}, {"mysql://u@h/shop?tls=FALSE", Warn, plain},
		{"mysql://u@h/shop?tls=true&tls=false", Warn, plain}, {"mysql://u@h/shop?tls=1", OK, "verified"}, {"mysql://u@h/shop?tls=TRUE", OK, "verified"},
		{"mysql://u@h/shop?tls=Skip-Verify", Warn, unproven}, {"mysql://u@h/shop?tls=Preferred", Warn, fallBack},
		{"mysql://u@h/shop?tls=true&allowFallbackToPlaintext=true", Warn, fallBack},
		{"mysql://u@h/shop?tls=true&allowFallbackToPlaintext=1", Warn, fallBack},
		{"mysql://u@h/shop?tls=true&allowFallbackToPlaintext=false", OK, "verified"},
		{"mysql://u@h/shop?tls=ours", Unknown, "program"}, {"mysql://u@localhost/shop?tls=0", OK, "this host"},

		{"rediss://u@cache.example:6379/0", OK, "verified"}, {"rediss://u@cache.example:6379/0?skip_verify=true", Warn, unproven},
		{"rediss://u@cache.example:6379/0?skip_verify=1", Warn, unproven}, {"rediss://u@cache.example:6379?skip_verify=false", OK, "verified"},
		{"rediss+sentinel://a.example,b.example?master_name=m&skip_verify=true", Warn, unproven},
		{"rediss://localhost:6379/0?skip_verify=true", OK, "this host"},
		{"redis+cluster://localhost:6379?addr=cache.example:6379", Warn, plain}, {"redis://:secret@cache.example?db=1", Bad, "the password"},

		{"postgres://u@localhost,db.example/x?sslmode=disable", Warn, plain}, {"postgres://u@db.example,localhost/x?sslmode=disable", Warn, plain},
		{"postgres://u@localhost,db.example/x?sslmode=prefer", Warn, fallBack}, {"postgres://u@localhost,db.example/x?sslmode=allow", Warn, fallBack},
		{"postgres://u@localhost,db.example/x?sslmode=require", Warn, unproven}, {"postgres://u@localhost,db.example/x?sslmode=verify-full", OK, "verified"},
		{"postgres://u@localhost,127.0.0.1/x?sslmode=disable", OK, "this host"}, {"postgres://u@/x?host=/tmp,db.example&sslmode=disable", Warn, plain},
	} {
		r, err := Examine(t.Context(), Input{Group: "g", Offline: true, Stores: []Store{{URL: c.url}}})
		require.NoError(t, err)
		f := worst(r, "settings.store.tls")
		require.Equal(t, c.want, f.Verdict, "%s: %+v", c.url, f)
		require.Contains(t, f.Detail, c.says, c.url)
	}
}

// A client of a service may accept any certificate.
func TestExamine_RedisClientTLS(t *testing.T) {
	own := func([][]byte, [][]*x509.Certificate) error { return nil }
	for _, c := range []struct {
		tls  *tls.Config
		want Verdict
	}{
		{nil, Warn}, {&tls.Config{}, OK}, {&tls.Config{InsecureSkipVerify: true}, Warn},
		{&tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: own}, OK},
	} {
		single := redis.NewClient(&redis.Options{Addr: "cache.example:6379", TLSConfig: c.tls})
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"localhost:6379", "cache.example:6379"}, TLSConfig: c.tls})
		for _, client := range []redis.UniversalClient{single, cluster} {
			t.Cleanup(func() { _ = client.Close() })
			r, err := Examine(t.Context(), Input{Group: "g", Offline: true, Stores: []Store{{Redis: client}}})
			require.NoError(t, err)
			require.Equal(t, c.want, worst(r, "settings.store.tls").Verdict, "%T: %+v", client, worst(r, "settings.store.tls"))
		}
	}
}
