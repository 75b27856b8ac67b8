package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// SecureKafka has the listeners of Kafka that want credentials, and the keys that make credentials.
// Users have no rights but those of ACLs, which [KafkaAdmin] may add.
type SecureKafka struct {
	// Login are brokers with SASL over TLS: PLAIN for User with Password, SCRAM for users that a
	// test adds, OAUTHBEARER with tokens of [SecureKafka.Token].
	Login []string
	// Mutual are brokers with certificates of clients, see [SecureKafka.Certificate].
	Mutual []string
	// CA is the file with the CA of the brokers and of the clients.
	CA string
	// User and Password are those of PLAIN.
	User, Password string

	keys string
}

// Secure returns the further listeners of the brokers of [Kafka].
func Secure(t testing.TB) *SecureKafka {
	t.Helper()
	s := &SecureKafka{
		Login:  strings.Split(service(t, "KAFKA_LOGIN_BROKERS"), ","),
		Mutual: strings.Split(service(t, "KAFKA_MUTUAL_BROKERS"), ","),
		User:   "plain", Password: "plain-secret", keys: service(t, "KAFKA_KEYS"),
	}
	s.CA = filepath.Join(s.keys, "ca.pem")
	return s
}

// Token returns a JSON Web Token that the brokers accept for a user until its end. A change may
// spoil the claims.
func (s *SecureKafka) Token(
	t testing.TB, user string, end time.Time, change ...func(claims map[string]any),
) string {
	t.Helper()
	claims := map[string]any{
		"sub": user, "aud": "idem-test", "iat": time.Now().Unix() - 1, "exp": end.Unix(),
		"jti": rand.Text(),
	}
	for _, c := range change {
		c(claims)
	}
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"ES256","kid":"idem-test"}`)) + "." + encode(payload)
	sum := sha256.Sum256([]byte(text))
	r, v, err := ecdsa.Sign(rand.Reader, s.key(t, "jwt.key"), sum[:])
	require.NoError(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	v.FillBytes(signature[32:])
	return text + "." + encode(signature)
}

// Certificate returns the certificate and the key, in PEM form, of a user.
func (s *SecureKafka) Certificate(t testing.TB, user string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: user},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	ca, err := x509.ParseCertificate(s.block(t, "ca.pem"))
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, ca, private.Public(), s.key(t, "ca.key"))
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func (s *SecureKafka) key(t testing.TB, name string) *ecdsa.PrivateKey {
	t.Helper()
	parsed, err := x509.ParsePKCS8PrivateKey(s.block(t, name))
	require.NoError(t, err)
	key, ok := parsed.(*ecdsa.PrivateKey)
	require.True(t, ok, name)
	return key
}

func (s *SecureKafka) block(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.keys, name))
	require.NoError(t, err)
	block, _ := pem.Decode(data)
	require.NotNil(t, block, name)
	return block.Bytes
}
