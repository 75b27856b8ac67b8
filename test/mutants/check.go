package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A checker finds rows that cannot be used.
type checker struct {
	root  string              // of the repository
	names map[string][]string // of the tests, by folder
}

func newChecker(root string) *checker {
	return &checker{root: root, names: make(map[string][]string)}
}

// mutant returns the reasons why m cannot be used.
func (c *checker) mutant(m *mutant) error {
	_, err := m.mutated(c.root)
	return errors.Join(err, m.checkWords(), c.owner(&m.tests))
}

func (m *mutant) checkWords() error {
	switch {
	case m.name == "" || m.promise == "":
		return errors.New("name and promise must be set")
	case m.old == m.with:
		return errors.New("the new text is the old one")
	}
	return nil
}

// mutated returns the file with the fault.
func (m *mutant) mutated(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(b), m.old); n != 1 {
		return "", fmt.Errorf("%s: the old text occurs %d times, not once", m.file, n)
	}
	return strings.Replace(string(b), m.old, m.with, 1), nil
}

// owner returns an error if a part of the pattern matches no test of the package.
func (c *checker) owner(o *owner) error {
	names, known := c.names[o.pkg]
	if !known {
		var err error
		if names, err = testNames(filepath.Join(c.root, o.pkg)); err != nil {
			return err
		}
		c.names[o.pkg] = names
	}
	for _, alternative := range splitOutside(o.run, '|') {
		first := splitOutside(alternative, '/')[0] // of the names of subtests
		pattern, err := regexp.Compile(first)
		if err != nil {
			return err
		}
		if !anyMatches(pattern, names) {
			return fmt.Errorf("%s: no test matches %s", o.pkg, alternative)
		}
	}
	return nil
}

// splitOutside splits a pattern at sep, except within brackets, as go test does.
func splitOutside(pattern string, sep rune) (parts []string) {
	depth, from := 0, 0
	for i, c := range pattern {
		switch {
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == sep && depth == 0:
			parts, from = append(parts, pattern[from:i]), i+1
		}
	}
	return append(parts, pattern[from:])
}

func anyMatches(pattern *regexp.Regexp, names []string) bool {
	for _, name := range names {
		if pattern.MatchString(name) {
			return true
		}
	}
	return false
}

// testNames returns the tests of a folder. It parses the files without compiling them.
func testNames(folder string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && isTest(f.Name.Name) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names, nil
}

func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") && name != "TestMain" ||
		strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example")
}
