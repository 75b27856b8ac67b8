package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const today = "2026-11-27"

// published makes a repository that is ready for a release, with a bare remote. The remote's file
// "pushed" has the tags in the order in which they came.
func published(t *testing.T) (p *publication, remote string) {
	t.Helper()
	for name, value := range map[string]string{
		"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	r, remote := small(t), t.TempDir()
	write(t, r, "test/go.mod", "module github.com/idem-go/idem/test\n\ngo 1.26.0\n\nreplace github.com/idem-go/idem => ..\n\nrequire github.com/idem-go/idem v0.0.0-00010101000000-000000000000\n")
	write(t, r, "docs/a.md", "# A\n")
	write(t, r, "README.md", "# Idem\n")
	write(t, r, "idem.go", strings.Replace(code, "Claim(id string)", "Claim(id, tenant string)", 1))
	write(t, r, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n* `Claim` takes a tenant.\n\n## 0.0.1 - 2026-01-01\n\n* `Claim`\n")
	require.NoError(t, r.writeNext())
	require.NoError(t, r.writeLicences(t.Context()))
	git(t, remote, "init", "-q", "--bare")
	hook := "#!/bin/sh\necho \"$1\" >>\"$GIT_DIR/pushed\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(remote, "hooks", "update"), []byte(hook), 0o755)) //nolint:gosec // git runs it
	git(t, r.root, "remote", "add", "origin", remote)
	p = &publication{repo: r, version: "v0.1.0", today: today, remote: "origin"}
	require.NoError(t, p.prepare(t.Context()))
	commitAll(t, p, "Prepare 0.1.0")
	return p, remote
}

// commitAll commits the working tree, and pushes it as main.
func commitAll(t *testing.T, p *publication, message string) {
	t.Helper()
	git(t, p.root, "add", "-A")
	git(t, p.root, "commit", "-q", "-m", message)
	git(t, p.root, "push", "-q", "origin", "HEAD:refs/heads/main")
}

func TestPrepare(t *testing.T) {
	p, _ := published(t)
	changelog, err := os.ReadFile(filepath.Join(p.root, "CHANGELOG.md"))
	require.NoError(t, err)
	require.Equal(t, "# Changelog\n\n## Unreleased\n\n## 0.1.0 - "+today+"\n\n* `Claim` takes a tenant.\n\n## 0.0.1 - 2026-01-01\n\n* `Claim`\n", string(changelog))
	next, err := p.lines(nextFile)
	require.NoError(t, err)
	require.Empty(t, next)
	released, err := p.lines(releasedFile)
	require.NoError(t, err)
	require.Contains(t, released, "pkg ., func (*Store) Claim(id, tenant string) error")
	file := filepath.Join(t.TempDir(), "NOTES.md")
	require.NoError(t, p.writeNotes(file))
	notes, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "* `Claim` takes a tenant.\n", string(notes))
	require.ErrorContains(t, p.prepare(t.Context()), "there is nothing to release")
}

func TestDryRun(t *testing.T) {
	p, remote := published(t)
	require.NoError(t, p.publish(t.Context()))
	require.Equal(t, []string{".", "nested"}, p.order)
	require.Empty(t, git(t, p.root, "tag", "--list"))
	require.Empty(t, git(t, remote, "tag", "--list"))
	require.Empty(t, git(t, p.root, "status", "--porcelain"))
	require.NotContains(t, git(t, p.root, "worktree", "list"), "detached")
}

func TestPush(t *testing.T) {
	p, remote := published(t)
	main := git(t, remote, "rev-parse", "main")
	p.push = true
	require.NoError(t, p.publish(t.Context()))
	require.Equal(t, main, git(t, remote, "rev-parse", "main"), "main stays as it is")
	pushed, err := os.ReadFile(filepath.Join(remote, "pushed"))
	require.NoError(t, err)
	require.Equal(t, "refs/heads/main\nrefs/tags/v0.1.0\nrefs/tags/nested/v0.1.0\n", string(pushed))
	require.Equal(t, main, git(t, remote, "rev-parse", "v0.1.0^"), "the commit of the tags is above main")
	require.Equal(t, "tag\n", git(t, remote, "cat-file", "-t", "nested/v0.1.0"))

	mod := git(t, remote, "show", "nested/v0.1.0:nested/go.mod")
	require.NotContains(t, mod, "replace")
	require.Contains(t, mod, "require github.com/idem-go/idem v0.1.0\n")
	require.Regexp(t, `^github.com/idem-go/idem v0.1.0 h1:`, git(t, remote, "show", "nested/v0.1.0:nested/go.sum"))
	other := git(t, remote, "show", "nested/v0.1.0:test/go.mod")
	require.Contains(t, other, "replace github.com/idem-go/idem => ..\n", "a module that is not released")
	require.Contains(t, other, "require github.com/idem-go/idem v0.1.0\n")

	// A release that was cut off after its first tag goes on with the second.
	git(t, p.root, "push", "-q", "origin", ":refs/tags/nested/v0.1.0")
	first := git(t, remote, "rev-parse", "v0.1.0")
	require.NoError(t, p.publish(t.Context()))
	require.Equal(t, first, git(t, remote, "rev-parse", "v0.1.0"))
	require.Equal(t, git(t, remote, "rev-parse", "v0.1.0^{commit}"), git(t, remote, "rev-parse", "nested/v0.1.0^{commit}"))
}

// A step that fails names the remedy, and no tag is made.
func TestPublishFails(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(t *testing.T, p *publication)
		says  string
	}{
		"no version":    {func(_ *testing.T, p *publication) { p.version = "v1" }, "Give one such as VERSION=0.1.0"},
		"a major of 2":  {func(_ *testing.T, p *publication) { p.version = "v2.0.0" }, "need /v2 at the end of their paths"},
		"changed files": {func(t *testing.T, p *publication) { write(t, p.repo, "new.go", "package idem\n") }, "Commit them first:\n?? new.go"},
		"not pushed": {func(t *testing.T, p *publication) {
			git(t, p.root, "commit", "-q", "--allow-empty", "-m", "More")
		}, "Check out main, and push or pull first"},
		"no section":  {func(_ *testing.T, p *publication) { p.version = "v0.2.0" }, `no section "## 0.2.0 - 2026-11-27". Run make release-prepare VERSION=0.2.0`},
		"another day": {func(_ *testing.T, p *publication) { p.today = "2026-11-28" }, "has the date 2026-11-27, and today is 2026-11-28"},
		"a changed API": {func(t *testing.T, p *publication) {
			write(t, p.repo, "more.go", "package idem\n\nfunc More() {}\n")
			commitAll(t, p, "More")
		}, "api/released.txt is not the API of this release. Run make release-prepare"},
		"a check": {func(t *testing.T, p *publication) {
			write(t, p.repo, "docs/a.md", "# A\n\n```go\nif x {\n```\n")
			commitAll(t, p, "Break a page")
		}, "step 6, checks: snippets: docs/a.md:3"},
		"a tag at another commit": {func(t *testing.T, p *publication) {
			git(t, p.root, "tag", "nested/v0.1.0")
			git(t, p.root, "push", "-q", "origin", "nested/v0.1.0")
		}, "A tag is never moved: choose the next version"},
	} {
		t.Run(name, func(t *testing.T) {
			p, remote := published(t)
			before := git(t, remote, "tag", "--list")
			c.plant(t, p)
			if name != "a tag at another commit" {
				require.Empty(t, before)
			}
			p.push = true
			require.ErrorContains(t, p.publish(t.Context()), c.says)
			require.NotContains(t, git(t, remote, "tag", "--list"), "\nv0.")
			require.NotRegexp(t, `(?m)^v0`, git(t, remote, "tag", "--list"))
		})
	}
}
