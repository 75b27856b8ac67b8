package main

import (
	"context"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/idem-go/idem/cmd/idem/internal/signin"
)

// signinFlags say how persons sign in, and what they may do.
type signinFlags struct {
	header       string
	groupsHeader string
	proxies      []string
	basicFile    string
	rules        signin.Rules
}

func (f *signinFlags) flags(s *pflag.FlagSet) {
	s.StringVar(
		&f.header, "auth-header", "",
		"`name` of the header in which a proxy sends the signed-in person, such as X-Forwarded-User",
	)
	s.StringVar(
		&f.groupsHeader, "auth-groups-header", "",
		"`name` of the header in which that proxy sends the person's groups, separated by commas",
	)
	s.StringSliceVar(
		&f.proxies, "trusted-proxies", nil,
		"addresses or ranges of the proxies with --auth-header, such as 10.0.0.0/24; others are refused",
	)
	s.StringVar(
		&f.basicFile, "basic-auth-file", "",
		"`file` in htpasswd form with bcrypt hashes, for basic authentication; read again when it changes",
	)
	s.StringSliceVar(
		&f.rules.Operators, "operators", nil,
		"users who may replay dead letters; * for all who sign in; none by default",
	)
	s.StringSliceVar(
		&f.rules.OperatorGroups, "operator-groups", nil, "groups whose members may replay dead letters",
	)
	s.StringSliceVar(
		&f.rules.Viewers, "viewers", nil,
		"users who may look at the page, beside operators; by default all who sign in",
	)
	s.StringSliceVar(
		&f.rules.ViewerGroups, "viewer-groups", nil, "groups whose members may look at the page",
	)
}

// guard returns the guard of the page. Its method is nil if no way to sign in was given.
func (f *signinFlags) guard(_ context.Context, log *slog.Logger) (*signin.Guard, error) {
	g := &signin.Guard{Rules: f.rules}
	groups := len(f.rules.OperatorGroups)+len(f.rules.ViewerGroups) > 0
	switch {
	case f.header != "" && f.basicFile != "":
		return nil, usage("--auth-header or --basic-auth-file, not both")
	case f.header == "" && f.groupsHeader != "":
		return nil, usage("--auth-groups-header needs --auth-header")
	case f.header == "" && len(f.proxies) > 0:
		return nil, usage("--trusted-proxies needs --auth-header")
	case groups && f.groupsHeader == "":
		return nil, usage("--operator-groups and --viewer-groups need --auth-groups-header")
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
		return nil, usage("--viewers needs a way to sign in: --basic-auth-file or --auth-header")
	}
	return g, nil
}
