package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
)

// listenTLS returns the TLS configuration of the page, or nil for HTTP.
func (f *opsFlags) listenTLS(log *slog.Logger) (*tls.Config, error) {
	switch {
	case f.listenCert == "" && f.listenKey == "":
		return nil, nil //nolint:nilnil // HTTP
	case f.listenCert == "" || f.listenKey == "":
		return nil, usage("--listen-tls-cert and --listen-tls-key belong together")
	}
	c := &pageCertificate{cert: f.listenCert, key: f.listenKey, log: log}
	if err := c.read(); err != nil {
		return nil, usage("--listen-tls-cert, --listen-tls-key: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// pageCertificate is a certificate with its key, in files that are read again at each handshake.
type pageCertificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	pair   tls.Certificate // of the last good contents
	failed string          // the error that was logged last
}

func (c *pageCertificate) read() error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", c.cert, c.key, err)
	}
	c.pair = pair
	return nil
}

// get returns the certificate of the files. After an error the last good one stays in use, and the
// error is logged once.
func (c *pageCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failed := ""
	if err := c.read(); err != nil {
		failed = err.Error()
	}
	if failed != "" && failed != c.failed {
		c.log.Warn("bad certificate of the page, the old one stays in use", "error", failed)
	}
	c.failed = failed
	pair := c.pair
	return &pair, nil
}
