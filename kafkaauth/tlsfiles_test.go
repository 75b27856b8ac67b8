package kafkaauth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority is a CA of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.pem, a.key, a.cert = a.sign(template, nil)
	return a
}

func (a *authority) sign(template *x509.Certificate, parent *authority) (string, *ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer, by := key, template
	if parent != nil {
		signer, by = parent.key, parent.cert
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), key, cert
}

// issue returns certificate and key, in PEM form, of a subject.
func (a *authority) issue(name string) (cert, key string) {
	a.t.Helper()
	cert, private, _ := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(a.t, err)
	return cert, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// peer is a TLS server that asks for certificates and answers with their common names.
type peer struct {
	port  string
	mu    sync.Mutex
	cert  tls.Certificate
	roots *x509.CertPool
}

func newPeer(t *testing.T, by, clients *authority) *peer {
	t.Helper()
	p := &peer{roots: x509.NewCertPool()}
	p.roots.AddCert(clients.cert)
	p.use(t, by)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: p.roots,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return &p.cert, nil
		},
	})
	require.NoError(t, err)
	_, p.port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
				secure, ok := conn.(*tls.Conn)
				if ok && secure.Handshake() == nil {
					_, _ = secure.Write([]byte(secure.ConnectionState().PeerCertificates[0].Subject.CommonName + "\n"))
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return p
}

// use makes the server show a certificate of another authority.
func (p *peer) use(t *testing.T, by *authority) {
	t.Helper()
	cert, key := by.issue("server")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cert = pair
}

// dial returns the name under which the server sees the client.
func (p *peer) dial(cfg *tls.Config, host string) (string, error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", net.JoinHostPort(host, p.port), cfg)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer := make([]byte, 100)
	n, err := conn.Read(answer)
	return strings.TrimSpace(string(answer[:n])), err
}

// folder has the files of a client.
type folder struct {
	TLSFiles
	t   *testing.T
	log *strings.Builder
}

func newFolder(t *testing.T, ca *authority, name string) *folder {
	t.Helper()
	f := &folder{t: t, log: new(strings.Builder)}
	at := func(name string) string { return filepath.Join(t.TempDir(), name) }
	f.TLSFiles = TLSFiles{CA: at("ca.pem"), Cert: at("cert.pem"), Key: at("key.pem"), Logger: slog.New(slog.NewTextHandler(f.log, nil))}
	write(t, f.CA, ca.pem)
	f.issue(ca, name)
	return f
}

func (f *folder) issue(by *authority, name string) {
	f.t.Helper()
	cert, key := by.issue(name)
	write(f.t, f.Cert, cert)
	write(f.t, f.Key, key)
}

func (f *folder) config() *tls.Config {
	f.t.Helper()
	cfg, err := f.Config()
	require.NoError(f.t, err)
	return cfg.Clone() // as clients do
}

func TestTLSFiles_NewCertificate(t *testing.T) {
	ca := newAuthority(t)
	p, f := newPeer(t, ca, ca), newFolder(t, ca, "one")
	cfg := f.config()
	sees := func(want string) {
		t.Helper()
		name, err := p.dial(cfg, "127.0.0.1")
		require.NoError(t, err)
		require.Equal(t, want, name)
	}
	sees("one")
	f.issue(ca, "two")
	sees("two")
	sees("two")
	require.Equal(t, 1, strings.Count(f.log.String(), "new client certificate is in use"), f.log)

	for name, spoil := range map[string]func(){
		"another key":   func() { _, key := ca.issue("x"); write(t, f.Key, key) },
		"half a key":    func() { write(t, f.Key, "-----BEGIN PRIVATE KEY-----\n"+canary) },
		"empty":         func() { write(t, f.Cert, "") },
		"gone":          func() { require.NoError(t, os.Remove(f.Cert)) },
		"a folder":      func() { require.NoError(t, os.Remove(f.Key)); require.NoError(t, os.Mkdir(f.Key, 0o700)) },
		"larger than 1": func() { write(t, f.Cert, strings.Repeat(" ", 1<<20+1)) },
	} {
		f.log.Reset()
		spoil()
		sees("two")
		sees("two")
		require.Equal(t, 1, strings.Count(f.log.String(), "bad client certificate, the old one stays in use"), name+": "+f.log.String())
		require.NotContains(t, f.log.String(), canary)
		require.NoError(t, os.RemoveAll(f.Key))
		f.issue(ca, "two")
		sees("two")
	}
	f.issue(ca, "three")
	sees("three")
}

func TestTLSFiles_NewCA(t *testing.T) {
	first, second, clients := newAuthority(t), newAuthority(t), newAuthority(t)
	p, f := newPeer(t, first, clients), newFolder(t, clients, "one")
	write(t, f.CA, first.pem)
	f.ReloadCA = true
	cfg := f.config()
	works := func(want bool) {
		t.Helper()
		_, err := p.dial(cfg, "localhost")
		if want {
			require.NoError(t, err)
			return
		}
		var unverified *tls.CertificateVerificationError
		require.ErrorAs(t, err, &unverified)
	}
	works(true)
	p.use(t, second)
	works(false)
	write(t, f.CA, first.pem+second.pem)
	works(true)
	f.log.Reset()
	write(t, f.CA, first.pem+second.pem[:len(second.pem)/2]) // half written
	works(true)
	works(true)
	require.Equal(t, 1, strings.Count(f.log.String(), "bad CA"), f.log)
	write(t, f.CA, first.pem)
	works(false)
	p.use(t, first)
	works(true)
}

// Without ReloadCA the CA is that of the start.
func TestTLSFiles_FixedCA(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	p, f := newPeer(t, first, first), newFolder(t, first, "one")
	cfg := f.config()
	require.False(t, cfg.InsecureSkipVerify)
	write(t, f.CA, second.pem)
	_, err := p.dial(cfg, "127.0.0.1")
	require.NoError(t, err)
	p.use(t, second)
	_, err = p.dial(cfg, "127.0.0.1")
	require.Error(t, err)
}

// ReloadCA verifies the name as crypto/tls does, and refuses where it cannot (G-07).
func TestTLSFiles_NameOfTheServer_G07(t *testing.T) {
	ca := newAuthority(t)
	p, f := newPeer(t, ca, ca), newFolder(t, ca, "one")
	for _, reload := range []bool{false, true} {
		f.ReloadCA = reload
		cfg := f.config()
		cfg.ServerName = "kafka.example"
		_, err := p.dial(cfg, "127.0.0.1")
		require.ErrorContains(t, err, "not kafka.example", reload)
	}
	_, err := p.dial(f.config(), "127.0.0.1")
	require.ErrorContains(t, err, "brokers must have a host name", "the certificate is good for the IP address, which is not known here")
}

func TestVerifiesServer_G07(t *testing.T) {
	f := newFolder(t, newAuthority(t), "one")
	f.ReloadCA = true
	require.True(t, VerifiesServer(f.config()))
	require.True(t, VerifiesServer(&tls.Config{MinVersion: tls.VersionTLS12}))
	cfg := f.config()
	cfg.VerifyConnection = nil
	require.False(t, VerifiesServer(cfg))
	cfg.VerifyConnection = func(tls.ConnectionState) error { return nil }
	require.False(t, VerifiesServer(cfg))
	cfg.VerifyConnection = func(s tls.ConnectionState) error { return s.PeerCertificates[0].VerifyHostname("x") }
	require.False(t, VerifiesServer(cfg), "it panics")
}

func TestTLSFiles_Mistakes(t *testing.T) {
	f := newFolder(t, newAuthority(t), "one")
	good := f.TLSFiles
	for want, spoil := range map[string]func(*TLSFiles){
		"belong together":                  func(f *TLSFiles) { f.Key = "" },
		"Cert and Key belong":              func(f *TLSFiles) { f.Cert = "" },
		"ReloadCA without CA":              func(f *TLSFiles) { f.CA, f.ReloadCA = "", true },
		"CA /nowhere: ":                    func(f *TLSFiles) { f.CA = "/nowhere" },
		"no certificate in PEM form":       func(f *TLSFiles) { f.CA = f.Key },
		"client certificate /nowhere, ":    func(f *TLSFiles) { f.Cert = "/nowhere" },
		"found a certificate rather than ": func(f *TLSFiles) { f.Key = f.Cert },
	} {
		files := good
		spoil(&files)
		_, err := files.Config()
		require.ErrorContains(t, err, want)
	}
	cfg, err := TLSFiles{}.Config()
	require.NoError(t, err)
	require.Nil(t, cfg.RootCAs, "those of the system")
	require.Nil(t, cfg.GetClientCertificate)
	require.EqualValues(t, tls.VersionTLS12, cfg.MinVersion)
}

// Connections may be made while the files change.
func TestTLSFiles_Concurrent(t *testing.T) {
	ca := newAuthority(t)
	p, f := newPeer(t, ca, ca), newFolder(t, ca, "one")
	f.ReloadCA = true
	cfg := f.config()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 10 {
				if _, err := p.dial(cfg.Clone(), "localhost"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		f.issue(ca, "one")
		write(t, f.CA, ca.pem)
	}
	clients.Wait()
}
