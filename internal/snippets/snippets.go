// Package snippets finds the pieces of code in pages of Markdown and checks those in Go. Tests and
// `make release-check` share it.
package snippets

import (
	"context"
	"errors"
	"fmt"
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

// fence matches the line above a block of code, and its language.
var fence = regexp.MustCompile("(?m)^ *(?:~{3,}|`{3,}) *(\\w+).*$")

// Form returns an error if a page has Go code in another form than Find finds. Such code would not
// be checked.
func Form(page, src string) error {
	for _, m := range fence.FindAllStringSubmatchIndex(src, -1) {
		language := strings.ToLower(src[m[2]:m[3]])
		line := strings.TrimSpace(src[m[0]:m[1]])
		if (language == "go" || language == "golang") && line != "```go" {
			return fmt.Errorf("%s:%d: begin Go code with ```go alone: %q is not checked",
				page, 1+strings.Count(src[:m[0]], "\n"), line)
		}
	}
	return nil
}

// A Checker checks snippets in Go against the packages of a working tree. It is safe for concurrent
// use.
type Checker struct {
	root     string
	packages packages
}

// NewChecker returns a Checker for the repository in the folder root.
func NewChecker(root string) *Checker {
	return &Checker{root: root, packages: packages{root: root}}
}

// Check returns an error if a snippet in Go is wrong. A whole program must compile. Any other code
// must be free of errors of types, but may use names from code around it.
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
	return c.packages.check(ctx, s)
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
