package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// thirdParty is the file with the licences of dependencies.
const thirdParty = "THIRD_PARTY.md"

// allowed are the licences that a dependency of a released module may have. Each lets users ship a
// program under any terms, if its notice comes along. The MPL asks for the source of changed files
// too, and Idem does not change files.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-2-Clause-Views", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", blessing}

// blessing is the name in SPDX of the public domain as SQLite declares it.
const blessing = "blessing"

// read are files that a person has read, with the licences of the linked parts. The library does
// not know most of their text: lists of parts, and a logo.
var read = map[string][]string{
	"modernc.org/libc/LICENSE-3RD-PARTY.md":   {"BSD-3-Clause", "MIT"},
	"modernc.org/memory/LICENSE-LOGO":         {},
	"modernc.org/sqlite/LICENSE-3RD-PARTY.md": {"BSD-3-Clause", "MIT"},
	"modernc.org/sqlite/LICENSE-SQLITE":       {blessing},
}

// platforms are those of released commands: some dependencies are for one of them only.
var platforms = []string{"linux", "darwin", "windows"}

// licenceFile matches the names of files with terms, and noticeFile those of additional notices.
var (
	licenceFile = regexp.MustCompile(`(?i)^(?:(?:un)?licen[cs]e|copying)(?:[-._].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(?:notice|patents)(?:\.\w+)?$`)
)

// A dependency is a module of others with packages that a released module links.
type dependency struct {
	path     string
	dir      string          // in the module cache
	packages map[string]bool // folders of the linked packages
	users    map[string]bool // folders of our modules
	licences []string
}

// dependencies returns the modules that the packages of these folders link, sorted by path.
func (r repo) dependencies(ctx context.Context, folders []string) ([]*dependency, error) {
	found := make(map[string]*dependency)
	for _, folder := range folders {
		for _, goos := range platforms {
			env := []string{"GOWORK=off", "CGO_ENABLED=0", "GOARCH=amd64", "GOOS=" + goos}
			out, err := goOutput(ctx, filepath.Join(r.root, folder), env, "list", "-deps", "-json=Dir,Module", "./...")
			if err != nil {
				return nil, err
			}
			if err := addDependencies(found, folder, out); err != nil {
				return nil, err
			}
		}
	}
	paths := slices.Sorted(maps.Keys(found))
	all := make([]*dependency, len(paths))
	var faults error
	for i, p := range paths {
		all[i] = found[p]
		faults = errors.Join(faults, found[p].classify())
	}
	return all, faults
}

// addDependencies reads the output of go list for a module in a folder.
func addDependencies(found map[string]*dependency, folder, list string) error {
	for dec := json.NewDecoder(strings.NewReader(list)); ; {
		var p struct {
			Dir    string
			Module *struct{ Path, Dir string }
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if p.Module == nil { // the standard library
			continue
		}
		if _, ours := folderOf(p.Module.Path); ours {
			continue
		}
		d := found[p.Module.Path]
		if d == nil {
			d = &dependency{path: p.Module.Path, dir: p.Module.Dir, packages: map[string]bool{}, users: map[string]bool{}}
			found[p.Module.Path] = d
		}
		d.packages[p.Dir], d.users[folder] = true, true
	}
}

// files returns the files of a module with a name that matches: those of its root, and those beside
// a linked package or above it.
func (d *dependency) files(name *regexp.Regexp) (files []string, err error) {
	folders := map[string]bool{d.dir: true}
	for p := range d.packages {
		for ; len(p) > len(d.dir); p = filepath.Dir(p) {
			folders[p] = true
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && name.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
				files = append(files, filepath.Join(folder, e.Name()))
			}
		}
	}
	return files, nil
}

// classify finds the licences of a module, and returns an error if one is missing, unknown or not
// allowed.
func (d *dependency) classify() error {
	files, err := d.files(licenceFile)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no licence. %s", d.path, readTerms)
	}
	ids := make(map[string]bool)
	for _, file := range files {
		found, err := d.terms(file)
		if err != nil {
			return err
		}
		for _, id := range found {
			if !slices.Contains(allowed, id) {
				return fmt.Errorf("%s has the licence %s, which is not in the allowed list. %s", d.path, id, readTerms)
			}
			ids[id] = true
		}
	}
	d.licences = slices.Sorted(maps.Keys(ids))
	return nil
}

// readTerms is the end of errors about licences.
const readTerms = "A person has to read the terms: docs/decisions/dependencies.md"

// terms returns the licences in a file.
func (d *dependency) terms(file string) (ids []string, err error) {
	name := filepath.ToSlash(file[len(d.dir)+1:])
	if ids, ok := read[d.path+"/"+name]; ok {
		return ids, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	// The rest of a file is the name of its owner, or a heading.
	coverage := licensecheck.Scan(text)
	if coverage.Percent < 75 {
		return nil, fmt.Errorf("%s: the terms in %s are not known. %s", d.path, name, readTerms)
	}
	for _, m := range coverage.Match {
		ids = append(ids, m.ID)
	}
	return ids, nil
}

// thirdPartyPage returns the contents of THIRD_PARTY.md.
func (r repo) thirdPartyPage(ctx context.Context) (string, error) {
	all, err := r.dependencies(ctx, r.modules)
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString("# Third-party licences\n\n" +
		"The modules that Idem's released modules link, made by `make licences`. The archives of the command\n" +
		"have the texts, and the SBOM of a release has the versions.\n\n" +
		"| module | licence | linked by |\n|---|---|---|\n")
	for _, d := range all {
		users := slices.Sorted(maps.Keys(d.users))
		for i, folder := range users {
			users[i] = "`" + pathOf(folder)[len("github.com/idem-go/"):] + "`"
		}
		fmt.Fprintf(&page, "| [%s](https://pkg.go.dev/%[1]s?tab=licenses) | %s | %s |\n", d.path, strings.Join(d.licences, ", "), strings.Join(users, ", "))
	}
	return page.String(), nil
}

// checkLicences fails if a dependency has a licence that is not allowed, or THIRD_PARTY.md is old.
func (r repo) checkLicences(ctx context.Context) error {
	want, err := r.thirdPartyPage(ctx)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(filepath.Join(r.root, thirdParty))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if string(have) != want {
		return fmt.Errorf("%s is not that of the dependencies. Run make licences", thirdParty)
	}
	return nil
}

// writeLicences writes THIRD_PARTY.md.
func (r repo) writeLicences(ctx context.Context) error {
	page, err := r.thirdPartyPage(ctx)
	if err != nil {
		return err
	}
	return put(filepath.Join(r.root, thirdParty), []byte(page))
}

// writeTexts writes the licences and notices of the dependencies of a module to a file. Programs
// with the dependencies are shipped with it.
func (r repo) writeTexts(ctx context.Context, folder, name string) error {
	all, err := r.dependencies(ctx, []string{folder})
	if err != nil {
		return err
	}
	goroot, err := goOutput(ctx, r.root, nil, "env", "GOROOT")
	if err != nil {
		return err
	}
	// The standard library is in every program.
	all = append([]*dependency{{path: "Go", dir: strings.TrimSpace(goroot)}}, all...)
	var out strings.Builder
	for _, d := range all {
		terms, err := d.files(licenceFile)
		if err != nil {
			return err
		}
		notices, err := d.files(noticeFile)
		if err != nil {
			return err
		}
		for _, file := range append(terms, notices...) {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, "==== %s: %s\n\n%s\n\n", d.path, filepath.ToSlash(file[len(d.dir)+1:]), strings.TrimSpace(string(text)))
		}
	}
	return put(name, []byte(out.String()))
}
