package schemaregistry

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"
)

// Config is the configuration of a [Registry].
type Config struct {
	// URLs are the addresses of the registry. Required. Later ones are tried if the earlier ones
	// cannot be reached, or redirect: redirects are not followed.
	URLs []string
	// TLS is the configuration of connections to https addresses. The default is Go's.
	TLS *tls.Config
	// Username and Password are for basic authentication. By default requests have no
	// authentication.
	Username, Password string
	// BearerToken is for bearer authentication, instead of Username. See Authorize for tokens that
	// change.
	BearerToken string
	// Authorize changes each request before it is sent, for example to set the present token. It
	// must be safe for concurrent use. An error counts as an unavailable registry.
	Authorize func(*http.Request) error
	// Timeout limits one request. The default is 3 s. One look-up makes several requests if the
	// schema has references.
	Timeout time.Duration
	// MaxSchemas limits the cached schemas. Beyond that, the oldest one is dropped. The default is
	// 10,000.
	MaxSchemas int
	// UnknownFor is how long an ID stays unknown without another question. The default is one
	// minute. The registry's answer is trusted after three questions within half a second.
	UnknownFor time.Duration
	// LatestFor is how long an [Encoder] uses the latest schema of a subject before it asks again.
	// If the registry does not answer then, the former schema is used. The default is five minutes.
	LatestFor time.Duration
	// AvroReaders are the Avro schemas of the handlers, as JSON. If the schema of a value has the
	// name of one of them, the value is resolved to that one. The Avro specification has the rules:
	// by field names and aliases, with defaults and promotions. A value that cannot be resolved is
	// undecodable. Other values are decoded by the schema of their writer alone. Each is parsed by
	// itself. Two recursive schemas are resolved only if they are the same. An [Encoder] does not
	// use AvroReaders.
	AvroReaders []string
}

const (
	defaultTimeout    = 3 * time.Second
	defaultMaxSchemas = 10_000
	defaultUnknownFor = time.Minute
	defaultLatestFor  = 5 * time.Minute
)

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.MaxSchemas == 0 {
		c.MaxSchemas = defaultMaxSchemas
	}
	if c.UnknownFor == 0 {
		c.UnknownFor = defaultUnknownFor
	}
	if c.LatestFor == 0 {
		c.LatestFor = defaultLatestFor
	}
	return c
}

func (c Config) validate() error {
	var problems []error
	if len(c.URLs) == 0 {
		problems = append(problems, errors.New("Config.URLs is empty: set the address of the registry"))
	}
	for _, u := range c.URLs {
		parsed, err := url.Parse(u)
		switch {
		case err != nil: // the text of err has the address, perhaps with a password
			problems = append(problems, errors.New("Config.URLs has an invalid address"))
		case parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "":
			problems = append(problems, fmt.Errorf(
				"Config.URLs: %q must begin with http:// or https:// and name a host", parsed.Redacted()))
		}
	}
	if c.Timeout < 0 || c.MaxSchemas < 0 || c.UnknownFor < 0 || c.LatestFor < 0 {
		problems = append(problems,
			errors.New("the Config fields Timeout, MaxSchemas, UnknownFor and LatestFor must not be negative"))
	}
	if c.Username != "" && c.BearerToken != "" {
		problems = append(problems, errors.New("set Username or BearerToken, not both"))
	}
	return errors.Join(problems...)
}

// client returns the client of the registry, which reads no endless answers.
func (c Config) client() (*sr.Client, error) {
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		base = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	base = base.Clone()
	if c.TLS != nil {
		base.TLSClientConfig = c.TLS.Clone()
	}
	opts := []sr.ClientOpt{
		sr.URLs(c.URLs...), sr.UserAgent("idem"),
		sr.HTTPClient(&http.Client{
			Timeout: c.Timeout, Transport: limited{base}, CheckRedirect: refuseRedirect,
		}),
	}
	if c.Username != "" || c.Password != "" {
		opts = append(opts, sr.BasicAuth(c.Username, c.Password))
	}
	if c.BearerToken != "" {
		opts = append(opts, sr.BearerToken(c.BearerToken))
	}
	if c.Authorize != nil {
		opts = append(opts, sr.PreReq(c.Authorize))
	}
	client, err := sr.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("client of the registry: %w", err)
	}
	return client, nil
}

// readers parses the schemas of Config.AvroReaders, by name and alias.
func (c Config) readers() (map[string]avro.Schema, error) {
	all := make(map[string]avro.Schema)
	for i, text := range c.AvroReaders {
		s, err := avro.ParseWithCache(text, "", &avro.SchemaCache{})
		if err != nil {
			return nil, fmt.Errorf("Config.AvroReaders[%d]: %w", i, err)
		}
		named, ok := s.(avro.NamedSchema)
		if !ok {
			return nil, fmt.Errorf("Config.AvroReaders[%d] has no name", i)
		}
		for _, name := range append([]string{named.FullName()}, named.Aliases()...) {
			if all[name] != nil {
				return nil, fmt.Errorf("Config.AvroReaders[%d]: %s appears twice", i, name)
			}
			all[name] = s
		}
	}
	return all, nil
}
