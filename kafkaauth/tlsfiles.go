package kafkaauth

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
)

// TLSFiles names the PEM files of a TLS client. The zero value trusts the CAs of the system and has
// no certificate.
type TLSFiles struct {
	// CA is a file with the certificates of trusted CAs. Defaults to those of the system.
	CA string
	// Cert and Key are files with the certificate of the client, followed by its intermediates, and
	// the private key. Both or neither.
	Cert, Key string
	// ReloadCA reads CA anew at each connection, too. It needs brokers that advertise host names:
	// crypto/tls does not report an IP address as the name of the server, so connections to such
	// brokers are refused. Without ReloadCA a new CA counts at the next start.
	ReloadCA bool
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Config reads the files and returns a configuration of TLS 1.2 or later, which verifies the server
// and its name. Cert and Key, and CA with ReloadCA, are read again at each new connection. If they
// have changed, the connection uses the new contents; open connections stay as they are. Bad new
// contents, such as a key that does not fit, are logged once, and the old contents are used.
//
// The error names the first file that is missing or bad. No error or log line has key material.
func (f TLSFiles) Config() (*tls.Config, error) {
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("TLSFiles: Cert and Key belong together")
	}
	if f.ReloadCA && f.CA == "" {
		return nil, errors.New("TLSFiles: ReloadCA without CA")
	}
	log := f.Logger
	if log == nil {
		log = slog.Default()
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		roots := &watched[*x509.CertPool]{
			kind: "CA", paths: []string{f.CA}, log: log,
			parse: func(files [][]byte) (*x509.CertPool, error) { return parseCAs(files[0]) },
		}
		pool, err := roots.first()
		if err != nil {
			return nil, err
		}
		if f.ReloadCA {
			cfg.InsecureSkipVerify = true // VerifyConnection verifies instead
			cfg.VerifyConnection = verify(roots.now)
		} else {
			cfg.RootCAs = pool
		}
	}
	if f.Cert == "" {
		return cfg, nil
	}
	pair := &watched[*tls.Certificate]{
		kind: "client certificate", paths: []string{f.Cert, f.Key}, log: log,
		parse: func(files [][]byte) (*tls.Certificate, error) {
			pair, err := tls.X509KeyPair(files[0], files[1])
			return &pair, err
		},
	}
	if _, err := pair.first(); err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return pair.now(), nil
	}
	return cfg, nil
}

// parseCAs is strict: a file that is half written must not take CAs away.
func parseCAs(data []byte) (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), 0
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(cert)
		found++
	}
	switch begun := bytes.Count(data, []byte("-----BEGIN CERTIFICATE-----")); {
	case found == 0:
		return nil, errors.New("no certificate in PEM form")
	case found != begun:
		return nil, fmt.Errorf("%d of %d certificates cannot be decoded", begun-found, begun)
	}
	return pool, nil
}

// errNoServerCertificate marks the function of verify, see [VerifiesServer].
var errNoServerCertificate = errors.New("the server has no certificate")

// verify returns a function for [tls.Config].VerifyConnection that does all that crypto/tls does.
func verify(roots func() *x509.CertPool) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		certs := state.PeerCertificates
		if len(certs) == 0 {
			return errNoServerCertificate
		}
		err := errors.New("the name of the server is not known: " +
			"with ReloadCA brokers must have a host name as their address")
		if state.ServerName != "" {
			options := x509.VerifyOptions{
				Roots: roots(), DNSName: state.ServerName, Intermediates: x509.NewCertPool(),
			}
			for _, cert := range certs[1:] {
				options.Intermediates.AddCert(cert)
			}
			_, err = certs[0].Verify(options)
		}
		if err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: certs, Err: err}
		}
		return nil
	}
}

// VerifiesServer reports whether connections with cfg verify the certificate and the name of the
// server: crypto/tls does, or InsecureSkipVerify is set and VerifyConnection is that of
// [TLSFiles].Config. To find out, VerifyConnection is called once with an empty state.
func VerifiesServer(cfg *tls.Config) (ok bool) {
	if !cfg.InsecureSkipVerify {
		return true
	}
	if cfg.VerifyConnection == nil {
		return false
	}
	defer func() {
		if recover() != nil { // a function of someone else that wants a certificate
			ok = false
		}
	}()
	return errors.Is(cfg.VerifyConnection(tls.ConnectionState{}), errNoServerCertificate)
}
