package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// check runs all checks, and returns what each found.
func (r repo) check(ctx context.Context) error {
	var found error
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"api", r.checkAPI},
		{"tidy", func() error { return r.checkTidy(ctx) }},
		{"tree", func() error { return r.checkTree(ctx) }},
	} {
		err := c.run()
		if err != nil {
			found = errors.Join(found, fmt.Errorf("%s: %w", c.name, err))
			continue
		}
		fmt.Printf("%s: ok\n", c.name)
	}
	return found
}

// checkTidy fails if go mod tidy would change a module.
func (r repo) checkTidy(ctx context.Context) (found error) {
	for _, module := range r.modules {
		_, err := goOutput(ctx, filepath.Join(r.root, module), []string{"GOWORK=off"}, "mod", "tidy", "-diff")
		found = errors.Join(found, err)
	}
	return found
}
