// Package snippets finds the pieces of code in pages of Markdown and checks those in Go. Tests and
// `make release-check` share it.
package snippets

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// module is the path of the root module.
const module = "github.com/idem-go/idem"

// A Snippet is a block of code of a page.
type Snippet struct {
	Page string
	Line int // of the page, of the fence above the code
	Text string
}

// String returns page and line.
func (s Snippet) String() string { return fmt.Sprintf("%s:%d", s.Page, s.Line) }

// Program reports whether the snippet is a whole program.
func (s Snippet) Program() bool { return strings.HasPrefix(s.Text, "package main\n") }

var fenced = regexp.MustCompile("(?m)^( *)```(\\w+)\n((?s:.*?)\n) *```$")

// Find returns the blocks of a language in the text of a page, without the indentation of a list.
func Find(page, src, language string) (all []Snippet) {
	for _, m := range fenced.FindAllStringSubmatchIndex(src, -1) {
		if src[m[4]:m[5]] != language {
			continue
		}
		indent, text := src[m[2]:m[3]], src[m[6]:m[7]]
		text = strings.ReplaceAll("\n"+text, "\n"+indent, "\n")[1:]
		all = append(all, Snippet{Page: page, Line: 1 + strings.Count(src[:m[0]], "\n"), Text: text})
	}
	return all
}

// A Checker checks snippets in Go against the packages of a working tree. It is safe for concurrent
// use.
type Checker struct {
	root  string
	names map[string]map[string]bool // exported names, by name of the package
}

// NewChecker reads the packages of the repository in the folder root.
func NewChecker(root string) (*Checker, error) {
	c := &Checker{root: root, names: make(map[string]map[string]bool)}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && foreign(d.Name()):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			return c.read(path)
		}
		return nil
	})
	return c, err
}

// foreign reports whether a folder has no package that a page shows.
func foreign(name string) bool {
	return strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "test" || name == "examples" || name == "cmd"
}

// read adds the exported names of a file.
func (c *Checker) read(path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil || file.Name.Name == "main" {
		return err
	}
	names := c.names[file.Name.Name]
	if names == nil {
		names = make(map[string]bool)
		c.names[file.Name.Name] = names
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				}
			}
		}
	}
	return nil
}

// Check returns an error if a snippet in Go is wrong. A whole program must compile. Any other code
// must have the form of Go code, and must use only names that this repository's packages have.
func (c *Checker) Check(ctx context.Context, s Snippet) error {
	err := c.check(ctx, s)
	if err != nil {
		err = fmt.Errorf("%s: the Go code does not compile, correct it in the page: %w", s, err)
	}
	return err
}

func (c *Checker) check(ctx context.Context, s Snippet) error {
	if s.Program() {
		return c.compile(ctx, s)
	}
	if err := parse(s.Text); err != nil {
		return fmt.Errorf("%w\n%s", err, s.Text)
	}
	return c.missing(s.Text)
}

// compile lets the compiler check a program, in the module that has all that the program imports.
func (c *Checker) compile(ctx context.Context, s Snippet) (err error) {
	dir, err := os.MkdirTemp("", "idem-snippet-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(s.Text), 0o600); err != nil {
		return err
	}
	vet := exec.CommandContext(ctx, "go", "vet", file)
	vet.Dir = c.root
	if strings.Contains(s.Text, module+"/dedup/sqlstore") {
		vet.Dir = filepath.Join(c.root, "examples")
	}
	vet.Env = append(os.Environ(), "GOWORK=off")
	if out, err := vet.CombinedOutput(); err != nil {
		return fmt.Errorf("go vet: %w\n%s", err, out)
	}
	return nil
}

// An ellipsis in a page stands for code of the reader.
var (
	ellipses    = regexp.MustCompile(`(?m)^\s*\.\.\.(?:\s*//.*)?$|([({]) ?\.\.\. ?([)}])`)
	declaration = regexp.MustCompile(`(?m)^(?:func|type|var|const) (?:.*[({,](?:\n.*)*?\n[})]|.*)$`)
)

// parse returns an error if a piece of code is none of these: declarations and statements, or
// fields of a literal.
func parse(text string) error {
	text = ellipses.ReplaceAllString(text, "$1$2")
	declarations := strings.Join(declaration.FindAllString(text, -1), "\n")
	statements := declaration.ReplaceAllString(text, "")
	err := parseFile(declarations + "\nfunc _() {\n" + statements + "\n}\n")
	if err != nil && parseFile("var _ = T{\n"+text+"\n}\n") == nil {
		return nil
	}
	return err
}

func parseFile(body string) error {
	_, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+body, parser.SkipObjectResolution)
	return err
}

// missing returns an error for each name, such as idem.On, that no package of that name has.
func (c *Checker) missing(text string) (found error) {
	var s scanner.Scanner
	fset := token.NewFileSet()
	s.Init(fset.AddFile("", fset.Base(), len(text)), []byte(text), nil, 0)
	last := [3]string{} // the tokens before: of pkg.Name, what is before pkg, pkg, the dot
	for {
		_, tok, lit := s.Scan()
		if tok == token.EOF {
			return found
		}
		if tok != token.IDENT {
			lit = tok.String()
		}
		pkg, names := last[1], c.names[last[1]]
		if tok == token.IDENT && last[2] == "." && last[0] != "." && names != nil && ast.IsExported(lit) && !names[lit] {
			found = errors.Join(found, fmt.Errorf("package %s has no %s", pkg, lit))
		}
		last = [3]string{last[1], last[2], lit}
	}
}
