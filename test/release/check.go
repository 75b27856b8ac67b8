package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/idem-go/idem/internal/snippets"
)

// check runs all checks, or those with these names, and returns all their errors.
func (r repo) check(ctx context.Context, names []string) (found error) {
	known := []string{}
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"api", r.checkAPI},
		{"replace", r.checkReplace},
		{"tidy", func() error { return r.checkTidy(ctx) }},
		{"licences", func() error { return r.checkLicences(ctx) }},
		{"snippets", func() error { return r.checkSnippets(ctx) }},
		{"tree", func() error { return r.checkTree(ctx) }},
	} {
		known = append(known, c.name)
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		if err := c.run(); err != nil {
			found = errors.Join(found, fmt.Errorf("%s: %w", c.name, err))
			continue
		}
		fmt.Printf("%s: ok\n", c.name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			found = errors.Join(found, fmt.Errorf("no check %q; there are %s", name, strings.Join(known, ", ")))
		}
	}
	return found
}

// checkTidy fails if go mod tidy would change a module.
func (r repo) checkTidy(ctx context.Context) (found error) {
	for _, module := range r.modules {
		_, err := goOutput(ctx, filepath.Join(r.root, module), []string{"GOWORK=off"}, "mod", "tidy", "-diff")
		if err != nil {
			found = errors.Join(found, fmt.Errorf("%s/go.mod is not tidy, run make tidy: %w", module, err))
		}
	}
	return found
}

// checkSnippets fails if Go code of a page does not compile.
func (r repo) checkSnippets(ctx context.Context) (found error) {
	checker := snippets.NewChecker(r.root)
	pages, err := fs.Glob(os.DirFS(r.root), "*.md")
	if err != nil {
		return err
	}
	err = filepath.WalkDir(filepath.Join(r.root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := filepath.Rel(r.root, path)
		pages = append(pages, page)
		return err
	})
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(r.root, page))
		if err != nil {
			return err
		}
		found = errors.Join(found, snippets.Form(page, string(text)))
		for _, s := range snippets.Find(page, string(text), "go") {
			found = errors.Join(found, checker.Check(ctx, s))
		}
	}
	return found
}
