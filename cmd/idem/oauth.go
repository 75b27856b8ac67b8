package main

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/idem-go/idem/kafkaauth"
)

// oauthFlags name the source of tokens for OAUTHBEARER: a file, or an authorization server.
type oauthFlags struct {
	file     string
	endpoint string
	clientID string
	scopes   []string
	params   []string
	ca       string
}

func (o *oauthFlags) flags(f *pflag.FlagSet) {
	f.StringVar(
		&o.file, "sasl-token-file", os.Getenv("IDEM_SASL_TOKEN_FILE"),
		"`file` with the token of OAUTHBEARER, read at each connection (env IDEM_SASL_TOKEN_FILE)",
	)
	f.StringVar(
		&o.endpoint, "sasl-token-url", os.Getenv("IDEM_SASL_TOKEN_URL"),
		"https `URL` of the server that gives tokens for client credentials (env "+
			"IDEM_SASL_TOKEN_URL)",
	)
	f.StringVar(
		&o.clientID, "sasl-client-id", os.Getenv("IDEM_SASL_CLIENT_ID"),
		"client at --sasl-token-url (env IDEM_SASL_CLIENT_ID); the secret is taken from env "+
			"IDEM_SASL_CLIENT_SECRET",
	)
	f.StringSliceVar(&o.scopes, "sasl-scope", nil, "scopes of the token (env IDEM_SASL_SCOPES)")
	f.StringArrayVar(
		&o.params, "sasl-token-param", nil,
		"further parameter `name=value` at --sasl-token-url, such as audience=kafka",
	)
	f.StringVar(
		&o.ca, "sasl-token-ca", "",
		"PEM `file` with the CAs of --sasl-token-url, those of the system by default",
	)
	o.scopes = envList("IDEM_SASL_SCOPES")
}

// tokenSource returns the source of tokens.
func (a *app) tokenSource() (kafkaauth.TokenSource, error) {
	o := &a.oauth
	switch {
	case o.file != "" && o.endpoint != "":
		return nil, usage("--sasl-token-file or --sasl-token-url, not both")
	case o.file != "":
		return kafkaauth.TokenFile(o.file), nil
	case o.endpoint == "":
		return nil, usage("OAUTHBEARER without tokens: give --sasl-token-file, or --sasl-token-url")
	case o.clientID == "":
		return nil, usage("--sasl-token-url without a client: give --sasl-client-id")
	}
	secret := os.Getenv("IDEM_SASL_CLIENT_SECRET")
	if secret == "" {
		return nil, usage(
			"no secret for client %q: set IDEM_SASL_CLIENT_SECRET (a flag would show the secret "+
				"to every user of the host)",
			o.clientID,
		)
	}
	a.secrets.Add(secret)
	c := kafkaauth.ClientCredentials{
		TokenURL: o.endpoint, ClientID: o.clientID, ClientSecret: secret, Scopes: o.scopes,
		Params: url.Values{}, AllowInsecure: a.allowInsecure,
	}
	for _, p := range o.params {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usage("--sasl-token-param is name=value")
		}
		c.Params.Add(name, value)
	}
	if o.ca != "" {
		trust, err := kafkaauth.TLSFiles{CA: o.ca}.Config()
		if err != nil {
			return nil, usage("--sasl-token-ca: %w", err)
		}
		c.Client = clientThatTrusts(trust)
	}
	source, err := c.Source()
	if err != nil {
		return nil, usage("--sasl-token-url, --sasl-token-param: %w", err)
	}
	return source, nil
}

// clientThatTrusts returns a client with the proxy and the timeouts of the default one.
func clientThatTrusts(trust *tls.Config) *http.Client {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		transport = standard.Clone()
	}
	transport.TLSClientConfig = trust
	return &http.Client{Transport: transport}
}
