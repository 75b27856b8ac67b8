// Package scaffold writes a small service that uses Idem into an empty directory: a consumer with
// one handler, its test, and files to run both.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/idem-go/idem/deadletter"
)

//go:embed all:templates
var templates embed.FS

// The stores that a service can have.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// Stores are the stores that a service can have. The first is the default.
var Stores = []string{SQLite, Postgres}

const (
	library  = "github.com/idem-go/idem"
	sqlstore = library + "/dedup/sqlstore"
	// placeholder is the version of a module that a replace line provides.
	placeholder = "v0.0.0-00010101000000-000000000000"
	goVersion   = "1.26"
)

// Service is the service to write.
type Service struct {
	// the module path; its last element, but for a major version, is the name of the service
	Module  string
	Topic   string // the topic to consume
	Store   string // one of Stores
	Version string // the version of Idem that go.mod requires; "" with Replace
	Replace string // the directory of a clone of Idem; "": no replace line
}

var (
	modulePath = regexp.MustCompile(`^[a-z0-9][a-z0-9._~-]*(/[A-Za-z0-9][A-Za-z0-9._~-]*)*$`)
	topicName  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
	release    = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[a-z]+\.\d+)?$`) // no pseudo-version
)

// Check returns the first mistake in s.
func (s Service) Check() error {
	switch {
	case !modulePath.MatchString(s.Module):
		return fmt.Errorf("%q is no module path: give one such as example.com/payments", s.Module)
	case !topicName.MatchString(s.Topic), s.Topic == ".", s.Topic == "..":
		return fmt.Errorf("%q is no name of a topic: use letters, digits, dots, - and _", s.Topic)
	case s.wrongTopic() != "":
		return fmt.Errorf("the service needs a topic %q, which Kafka refuses: use letters, digits, "+
			"dots, - and _ in the last element of the module, and shorter names if the topic has "+
			"more than 249 characters", s.wrongTopic())
	case !slices.Contains(Stores, s.Store):
		return fmt.Errorf("the store %q is unknown: use %s", s.Store, strings.Join(Stores, " or "))
	case s.Replace == "" && !release.MatchString(s.Version):
		return errors.New("this program was not built from a release of Idem: name a clone with " +
			"--replace, such as ../idem")
	}
	if s.Replace == "" {
		return nil
	}
	mod, err := os.ReadFile(filepath.Join(s.Replace, "go.mod"))
	if err != nil {
		return fmt.Errorf("%s is no clone of Idem: %w", s.Replace, err)
	}
	if !isLibrary(mod) {
		return fmt.Errorf("%s is no clone of Idem: its go.mod is that of another module", s.Replace)
	}
	return nil
}

// wrongTopic returns a topic for dead letters or their replays whose name is not allowed; empty: none.
// The group of a service is its name.
func (s Service) wrongTopic() string {
	group := nameOf(s.Module)
	for _, name := range []string{
		deadletter.Topic(group)(s.Topic), deadletter.RetryTopic(s.Topic, group, 0),
	} {
		if !topicName.MatchString(name) {
			return name
		}
	}
	return ""
}

// isLibrary reports whether a go.mod is that of Idem. Git on Windows ends lines with \r\n.
func isLibrary(mod []byte) bool {
	first, _, _ := bytes.Cut(mod, []byte("\n"))
	return string(bytes.TrimSpace(first)) == "module "+library
}

// values are the values that templates use.
type values struct {
	Service
	Name     string
	Go       string
	Requires []string
	Replaces map[string]string
}

func (s Service) values() values {
	v := values{Service: s, Name: nameOf(s.Module), Go: goVersion, Requires: []string{library}}
	if s.Store == SQLite {
		v.Requires = append(v.Requires, sqlstore)
	}
	if s.Replace != "" {
		v.Version = placeholder
		v.Replaces = map[string]string{library: quoted(s.Replace)}
		if s.Store == SQLite {
			v.Replaces[sqlstore] = quoted(filepath.Join(s.Replace, "dedup", "sqlstore"))
		}
	}
	return v
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// nameOf returns the last element of a module path that is no major version.
func nameOf(module string) string {
	if dir, last := path.Split(module); dir != "" && majorVersion.MatchString(last) {
		return path.Base(dir)
	}
	return path.Base(module)
}

// quoted returns a directory as go.mod has it.
func quoted(dir string) string {
	if strings.ContainsAny(dir, " \t\"'`,()[]{}") || strings.Contains(dir, "//") {
		return strconv.Quote(dir)
	}
	return dir
}

// ErrNotEmpty means that the directory of a new service has files.
var ErrNotEmpty = errors.New("give an empty directory")

// Write writes s into dir, which must be empty or absent, and returns the names of the files.
func Write(dir string, s Service) (files []string, err error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	content, err := render(s)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // sources, which others may read
		return nil, err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range there {
		if f.Name() != ".git" {
			return nil, fmt.Errorf("%s has files, such as %s: %w", dir, f.Name(), ErrNotEmpty)
		}
	}
	for name, text := range content {
		err := os.WriteFile(filepath.Join(dir, name), text, 0o644) //nolint:gosec // sources
		if err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	slices.Sort(files)
	return files, nil
}

// render returns the files of s by name.
func render(s Service) (map[string][]byte, error) {
	v, content := s.values(), make(map[string][]byte)
	for _, dir := range []string{"common", s.Store} {
		list, err := fs.Glob(templates, "templates/"+dir+"/*.tmpl")
		if err != nil {
			return nil, err
		}
		for _, file := range list {
			t, err := template.ParseFS(templates, file)
			if err != nil {
				return nil, err
			}
			var b bytes.Buffer
			if err := t.Execute(&b, v); err != nil {
				return nil, err
			}
			name, text := strings.TrimSuffix(path.Base(file), ".tmpl"), b.Bytes()
			if name == "gitignore" {
				name = ".gitignore"
			}
			if strings.HasSuffix(name, ".go") {
				if text, err = format.Source(text); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
			content[name] = text
		}
	}
	return content, nil
}
