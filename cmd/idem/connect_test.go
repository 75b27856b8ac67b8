package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/testenv"
)

// certificate makes one for this host, signed by itself, and returns the file that a client trusts
// it by.
func certificate(t testing.TB) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// TLS and SASL reach a broker that asks for both, and no other broker is trusted (G-07).
func TestKafkaOverTLS_G07(t *testing.T) {
	const password = "canary-4711"
	cert, ca := certificate(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}),
		kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", password), kfake.Superuser("SCRAM-SHA-256", "alice", password))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	base := []string{"event", "get", "1", "--type", "order", "-G", "billing", "--store", inMemory, "--dead-letters", "--brokers", strings.Join(cluster.ListenAddrs(), ",")}
	try := func(more ...string) ran { return commandWith(t, known, "", append(base, more...)...) }

	t.Setenv("IDEM_SASL_PASSWORD", password)
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256"} {
		require.Contains(t, try("--tls-ca", ca, "--sasl-mechanism", mechanism, "--sasl-user", "alice").ok(t), "0 found among 0 records")
	}
	refused := []ran{
		try("--tls", "--sasl-mechanism", "PLAIN", "--sasl-user", "alice"), // the CA is not trusted
		try("--tls-ca", ca, "--sasl-mechanism", "PLAIN", "--sasl-user", "bob"),
	}
	t.Setenv("IDEM_SASL_PASSWORD", password+"-wrong")
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} { // no password is sent without TLS
		r := try("--sasl-mechanism", mechanism, "--sasl-user", "alice")
		r.failed(t, exitUsage, "SASL/"+mechanism+" without TLS")
		require.NotContains(t, r.stdout+r.stderr, "canary")
	}
	refused = append(refused, try("--tls-ca", ca, "--sasl-mechanism", "SCRAM-SHA-256", "--sasl-user", "alice"))
	for _, r := range refused {
		r.failed(t, exitFailure, "kafka 127.0.0.1:")
		require.NotContains(t, r.stdout+r.stderr, "canary")
	}
}

// redisURL is the server of the tests as the flag wants it.
func redisURL(t testing.TB) string {
	t.Helper()
	o := testenv.RedisOptions(t)
	return "redis://" + o.Addr + "/0"
}

// The verbs work on a Redis and on a cluster of it, under any prefix, and find the types that a
// scope has registered.
func TestEventOnRedis(t *testing.T) {
	client, prefix := testenv.Redis(t)
	checkRedis(t, client, prefix, redisURL(t))
}

func TestEventOnRedisCluster(t *testing.T) {
	client, prefix := testenv.RedisCluster(t)
	checkRedis(t, client, prefix, "redis+cluster://"+strings.Join(testenv.RedisClusterOptions(t).Addrs, ","))
}

func checkRedis(t *testing.T, client redis.UniversalClient, prefix, url string) {
	t.Helper()
	s := redisstore.New(client, redisstore.Prefix(prefix))
	finish(t, s, claim(t, s, inScope("order", "done"), dedupOrigin(1)), "")
	finish(t, s, claim(t, s, inScope("order", "dead"), dedupOrigin(2)), "no such account")
	on := func(args ...string) ran {
		return command(t, append(append([]string{"event"}, args...), "--store", url, "--redis-prefix", prefix, "-G", "billing")...)
	}
	require.Contains(t, on("get", "done", "--type", "order").ok(t), "duplicates")
	on("get", "done").failed(t, exitUsage, "--type")
	registration := dedup.Registration{Scope: "billing", Group: "billing", Topics: []string{prefix + "orders"}, Descriptors: map[string]string{"order": "a", "invoice": "b"}}
	require.NoError(t, s.Register(t.Context(), registration))
	out := on("get", "dead").ok(t)
	require.Contains(t, out, "no such account")
	require.Contains(t, out, "redis")
	on("get", "nobody").failed(t, exitFound, "not known")
	on("list").failed(t, exitUsage, "Postgres")

	on("release", "done", "-y").ok(t)
	require.Equal(t, dedup.Fresh, toldNext(t, s, inScope("order", "done")))
	on("release", "done", "-y").failed(t, exitFound, "is being handled")
	on("skip", "done", "-y").ok(t)
	require.Equal(t, dedup.Dead, toldNext(t, s, inScope("order", "done")))
	on("skip", "unknown", "--type", "order", "-y").ok(t)
	require.Equal(t, dedup.Dead, toldNext(t, s, inScope("order", "unknown")))

	if brokers := testenv.Kafka(t); len(brokers) > 0 {
		topic := testenv.CreateTopic(t, brokers, 1)
		write(t, brokers, topic, 0, time.Now(), record(`{"event_id": "old", "type": "order"}`))
		commit(t, brokers, "g-"+topic, topic, 1)
		var c imported
		r := command(t, "import", "--store", url, "--redis-prefix", prefix, "-G", "g-"+topic, "--scope", "billing", "-y", "-o", "json",
			"--brokers", strings.Join(brokers, ","), "--from-topic", topic, "--to-committed")
		r.ok(t)
		r.json(t, &c)
		require.Equal(t, int64(1), c.Added)
		require.Equal(t, dedup.Done, toldNext(t, s, inScope("order", "old")))
	}
}

// G-04: a server that refuses a password does not bring it into the error; TLS to a server without
// it fails.
func TestRedisRefuses_G04(t *testing.T) {
	addr := testenv.RedisServer(t)
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", "another-secret").Err())
	for url, words := range map[string]string{
		"redis://:canary-4711@" + addr:  "WRONGPASS",
		"redis://u:canary-4711@" + addr: "WRONGPASS",
		"redis://" + addr:               "NOAUTH",
		"rediss://:canary-4711@" + addr + "?dial_timeout=300ms&read_timeout=300ms": "store unavailable",
		"redis+cluster://:canary-4711@" + addr:                                     "WRONGPASS",
		"redis://:another-secret@" + addr + "?db=1":                                "",
	} {
		r := command(t, "event", "get", "1", "--type", "order", "-G", "g", "--store", url)
		require.NotContains(t, r.stdout+r.stderr, "canary-4711")
		require.NotContains(t, r.stdout+r.stderr, "another-secret")
		if words == "" {
			r.failed(t, exitFound, "not known")
		} else {
			r.failed(t, exitFailure, words)
		}
	}
}
