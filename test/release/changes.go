package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The files of api/: the API of the last release, and the changes since.
const (
	releasedFile = "api/released.txt"
	nextFile     = "api/next.txt"
)

// changes returns the difference between two APIs: lines that begin with + or -.
func changes(from, to []string) (lines []string) {
	for _, l := range from {
		if !slices.Contains(to, l) {
			lines = append(lines, "- "+l)
		}
	}
	for _, l := range to {
		if !slices.Contains(from, l) {
			lines = append(lines, "+ "+l)
		}
	}
	return lines
}

// symbol finds the name in a line of the API: the field or method if there is one.
var symbol = regexp.MustCompile(
	`^[+-] pkg [^,]+, (?:through an alias: )?(?:func (?:\([^)]*\) )?(\w+)|type (\w+)|(?:const|var) (\w+))`,
)

// unnamed returns the changes of declarations that the text of the changelog does not name.
func unnamed(changed []string, changelog string) (missing []string) {
	for _, line := range changed {
		m := symbol.FindStringSubmatch(line)
		if m == nil {
			missing = append(missing, line)
			continue
		}
		name := m[1] + m[2] + m[3]
		if !regexp.MustCompile("`[^`\n]*\\b" + name + "\\b[^`\n]*`").MatchString(changelog) {
			missing = append(missing, line)
		}
	}
	return missing
}

// unreleased returns that section of CHANGELOG.md.
func (r repo) unreleased() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	return unreleased(string(text))
}

// unreleased returns that section of the changelog.
func unreleased(changelog string) (string, error) {
	_, rest, ok := strings.Cut(changelog, "\n## Unreleased\n")
	if !ok {
		return "", errors.New("CHANGELOG.md has no section Unreleased")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	return section, nil
}

// checkAPI fails if api/next.txt lacks a change, or the changelog does not name it.
func (r repo) checkAPI() error {
	want, err := r.next()
	if err != nil {
		return err
	}
	recorded, err := r.lines(nextFile)
	if err != nil {
		return err
	}
	if d := changes(recorded, want); len(d) > 0 {
		return fmt.Errorf("the API has changes that %s lacks. Run make api, and name them in CHANGELOG.md:\n%s", nextFile, strings.Join(d, "\n"))
	}
	section, err := r.unreleased()
	if err != nil {
		return err
	}
	mark, err := r.mark()
	if err != nil {
		return err
	}
	if mark != "" && mark != markOf(section) {
		return fmt.Errorf("section Unreleased of CHANGELOG.md has changed: run make api, which notes its checksum in %s", nextFile)
	}
	if missing := unnamed(recorded, section); len(missing) > 0 {
		return fmt.Errorf("section Unreleased of CHANGELOG.md does not name in backticks these changes. Add a line for each:\n%s", strings.Join(missing, "\n"))
	}
	return nil
}

// next returns how the API differs from that of the last release.
func (r repo) next() ([]string, error) {
	released, err := r.lines(releasedFile)
	if err != nil {
		return nil, err
	}
	now, err := r.api()
	if err != nil {
		return nil, err
	}
	return changes(released, now), nil
}

// changelogMark begins the first line of api/next.txt, which has the checksum of section
// Unreleased.
const changelogMark = "# section Unreleased of CHANGELOG.md: "

// writeNext writes api/next.txt. Without a file of a release, the API of now becomes it. If the API
// has changed, but not the changelog, writeNext fails, because the changelog may already name a
// declaration that now has another signature. checkAPI compares the recorded checksum, so that no
// earlier edit of the changelog counts.
func (r repo) writeNext() error {
	if _, err := os.Stat(filepath.Join(r.root, releasedFile)); errors.Is(err, fs.ErrNotExist) {
		now, err := r.api()
		if err != nil {
			return err
		}
		if err := r.write(releasedFile, now); err != nil {
			return err
		}
	}
	next, err := r.next()
	if err != nil {
		return err
	}
	recorded, err := r.lines(nextFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	section, err := r.unreleased()
	if err != nil {
		return err
	}
	mark, err := r.mark()
	if err != nil {
		return err
	}
	if d := changes(recorded, next); len(d) > 0 && mark == markOf(section) {
		return fmt.Errorf("the API has changes, but section Unreleased of CHANGELOG.md is the same. Add a line to it, then run make api:\n%s", strings.Join(d, "\n"))
	}
	return r.write(nextFile, append([]string{markOf(section)}, next...))
}

// markOf is the first line of api/next.txt for a section of the changelog.
func markOf(section string) string {
	return fmt.Sprintf("%s%x", changelogMark, sha256.Sum256([]byte(section)))
}

// mark returns the first line of api/next.txt, or "" for a file that is missing or empty, as after
// a release.
func (r repo) mark() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, nextFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return first, err
}

// lines returns the lines of a file, but not its comments.
func (r repo) lines(name string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, name))
	if err != nil || len(text) == 0 {
		return nil, err
	}
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	return slices.DeleteFunc(all, func(l string) bool { return strings.HasPrefix(l, "#") }), nil
}

func (r repo) write(name string, lines []string) error {
	text := strings.Join(lines, "\n")
	if text != "" {
		text += "\n"
	}
	file := filepath.Join(r.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
