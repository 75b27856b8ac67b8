package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/idem-go/idem/cmd/idem/internal/signin"
)

// signinFlags choose how persons sign in, and their rights.
type signinFlags struct {
	header       string
	groupsHeader string
	proxies      []string
	basicFile    string
	rules        signin.Rules
	oidc         oidcFlags
}

// oidcFlags are those of OpenID Connect.
type oidcFlags struct {
	issuer      string
	clientID    string
	secretFile  string
	publicURL   string
	scopes      []string
	nameClaim   string
	groupsClaim string
	keyFile     string
	life        time.Duration
}

func (f *oidcFlags) flags(s *pflag.FlagSet) {
	s.StringVar(
		&f.issuer, "oidc-issuer", "", "`URL` of the issuer at which persons sign in, by OpenID "+
			"Connect",
	)
	s.StringVar(&f.clientID, "oidc-client-id", "", "client of the page at the issuer")
	s.StringVar(
		&f.secretFile, "oidc-client-secret-file", "",
		"`file` with the secret of that client; none for a public client",
	)
	s.StringVar(
		&f.publicURL, "public-url", "",
		"`URL` of the page in browsers, which ends with a slash; the issuer sends persons to "+
			"signin/callback below it",
	)
	s.StringSliceVar(
		&f.scopes, "oidc-scopes", []string{"profile", "email"}, "scopes to request beside openid",
	)
	s.StringVar(&f.nameClaim, "oidc-name-claim", "email", "claim of the ID token with the user")
	s.StringVar(
		&f.groupsClaim, "oidc-groups-claim", "groups", "claim of the ID token with the user's "+
			"groups",
	)
	s.StringVar(
		&f.keyFile, "session-key-file", "",
		"`file` with 32 bytes or more that encrypt sessions, the same for all replicas; random "+
			"by default, until the end of the process",
	)
	s.DurationVar(&f.life, "session-life", 8*time.Hour, "how long a session lasts, at most 24h")
}

func (f *signinFlags) flags(s *pflag.FlagSet) {
	s.StringVar(
		&f.header, "auth-header", "",
		"`name` of the header in which a proxy sends the signed-in person, "+
			"such as X-Forwarded-User",
	)
	s.StringVar(
		&f.groupsHeader, "auth-groups-header", "",
		"`name` of the header in which that proxy sends the person's groups, separated by commas",
	)
	s.StringSliceVar(
		&f.proxies, "trusted-proxies", nil,
		"addresses or ranges of the proxies with --auth-header, such as 10.0.0.0/24; others are "+
			"refused",
	)
	s.StringVar(
		&f.basicFile, "basic-auth-file", "",
		"`file` in htpasswd form with bcrypt hashes, for basic authentication; read again when "+
			"it changes",
	)
	s.StringSliceVar(
		&f.rules.Operators, "operators", nil,
		"users who may replay dead letters; * for all who sign in; none by default",
	)
	s.StringSliceVar(
		&f.rules.OperatorGroups, "operator-groups", nil, "groups whose members may replay dead "+
			"letters",
	)
	s.StringSliceVar(
		&f.rules.Viewers, "viewers", nil,
		"users who may look at the page, beside operators; by default all who sign in",
	)
	s.StringSliceVar(
		&f.rules.ViewerGroups, "viewer-groups", nil, "groups whose members may look at the page",
	)
	f.oidc.flags(s)
}

// oidcMethod asks the issuer.
func (f *signinFlags) oidcMethod(
	ctx context.Context, a *app, prefix string, log *slog.Logger,
) (*signin.OIDC, error) {
	o := &f.oidc
	cfg := signin.OIDCConfig{
		Issuer: o.issuer, ClientID: o.clientID, PublicURL: o.publicURL, Prefix: prefix,
		Scopes:    o.scopes,
		NameClaim: o.nameClaim, GroupsClaim: o.groupsClaim, Life: o.life, Log: log,
		Groups: slices.Concat(f.rules.ViewerGroups, f.rules.OperatorGroups),
	}
	switch {
	case o.clientID == "" || o.publicURL == "":
		return nil, usage("--oidc-issuer needs --oidc-client-id and --public-url")
	case len(f.rules.Viewers)+len(f.rules.ViewerGroups) == 0:
		return nil, usage(
			"--oidc-issuer needs --viewers or --viewer-groups; --viewers '*' lets each account " +
				"of the issuer in",
		)
	}
	if o.secretFile != "" {
		secret, err := readSecret(o.secretFile)
		if err != nil {
			return nil, usage("--oidc-client-secret-file: %w", err)
		}
		cfg.ClientSecret = strings.TrimSpace(string(secret))
		a.secrets.Add(cfg.ClientSecret)
	}
	if o.keyFile == "" {
		cfg.Key = make([]byte, 32)
		_, _ = rand.Read(cfg.Key) // it cannot fail
	} else {
		var err error
		if cfg.Key, err = readSecret(o.keyFile); err != nil {
			return nil, usage("--session-key-file: %w", err)
		}
	}
	m, err := signin.NewOIDC(ctx, cfg)
	var away *signin.DiscoveryError
	switch {
	case errors.As(err, &away):
		return nil, fmt.Errorf("--oidc-issuer: %w", err)
	case err != nil:
		return nil, usage(
			"--oidc-issuer, --public-url, --session-key-file, --session-life: %w", err)
	}
	return m, nil
}

// maxSecret bounds a file with a secret.
const maxSecret = 4096

func readSecret(path string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) == 0 || len(b) > maxSecret:
		return nil, fmt.Errorf("%s has %d bytes, not 1 to %d", path, len(b), maxSecret)
	}
	return b, nil
}

// guard returns the guard of the page. Its method is nil if no way to sign in was given.
func (f *signinFlags) guard(
	ctx context.Context, a *app, prefix string, log *slog.Logger,
) (*signin.Guard, error) {
	g := &signin.Guard{Rules: f.rules}
	groups := len(f.rules.OperatorGroups)+len(f.rules.ViewerGroups) > 0
	switch {
	case f.header != "" && f.basicFile != "", f.oidc.issuer != "" && f.header+f.basicFile != "":
		return nil, usage("--auth-header, --basic-auth-file or --oidc-issuer, not several")
	case f.oidc.issuer == "" &&
		f.oidc.clientID+f.oidc.secretFile+f.oidc.publicURL+f.oidc.keyFile != "":
		return nil, usage(
			"--oidc-client-id, --public-url and --session-key-file need --oidc-issuer")
	case f.header == "" && f.groupsHeader != "":
		return nil, usage("--auth-groups-header needs --auth-header")
	case f.header == "" && len(f.proxies) > 0:
		return nil, usage("--trusted-proxies needs --auth-header")
	case groups && f.groupsHeader == "" && f.oidc.issuer == "":
		return nil, usage("--operator-groups and --viewer-groups need --auth-groups-header or " +
			"--oidc-issuer")
	case f.oidc.issuer != "":
		m, err := f.oidcMethod(ctx, a, prefix, log)
		if err != nil {
			return nil, err
		}
		g.Method = m
	case f.header != "":
		m, err := signin.NewHeader(f.header, f.groupsHeader, f.proxies)
		if err != nil {
			return nil, usage("--auth-header, --auth-groups-header, --trusted-proxies: %w", err)
		}
		g.Method = m
	case f.basicFile != "":
		m, err := signin.NewBasic(f.basicFile, log)
		if err != nil {
			return nil, usage("--basic-auth-file: %w", err)
		}
		g.Method = m
	case len(f.rules.Viewers) > 0:
		return nil, usage("--viewers needs a way to sign in: --basic-auth-file, --auth-header or " +
			"--oidc-issuer")
	}
	return g, nil
}
