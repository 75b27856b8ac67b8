package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// A publication is one release on its way.
type publication struct {
	repo
	version string // v0.1.0
	today   string // 2026-11-27
	remote  string
	push    bool // else a dry run, which makes and pushes no tag
	order   []string
	commit  string // of the tags
}

// publish checks each step of a release, prints it, and pushes the tags at the end if the run is no
// dry run. The first step that fails ends the release.
func (p *publication) publish(ctx context.Context) error {
	work, err := os.MkdirTemp("", "idem-release-")
	if err != nil {
		return err
	}
	defer func() {
		// The commit stays without a branch. git removes it in time unless a tag names it.
		_, gone := p.git(context.WithoutCancel(ctx), "worktree", "prune")
		err = errors.Join(err, gone)
	}()
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for i, step := range []struct {
		name string
		run  func(context.Context) (string, error)
	}{
		{"version", p.checkVersion},
		{"clean tree", p.checkClean},
		{"main", p.checkMain},
		{"changelog", p.checkChangelog},
		{"API list", p.checkReleasedAPI},
		{"checks", func(ctx context.Context) (string, error) { return "", p.check(ctx, nil) }},
		{"commit", func(ctx context.Context) (string, error) { return p.makeCommit(ctx, work) }},
		{"tags", p.checkTags},
	} {
		note, err := step.run(ctx)
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, step.name, err)
		}
		fmt.Printf("step %d, %s: ok%s\n", i+1, step.name, note)
	}
	if !p.push {
		fmt.Printf("dry run: nothing was tagged or pushed. To push these tags to %s, add PUSH=1\n", p.remote)
		return nil
	}
	return p.pushTags(ctx)
}

// git runs git in the repository, and returns the output.
func (p *publication) git(ctx context.Context, args ...string) (string, error) {
	return gitOutput(ctx, p.root, nil, args...)
}

func gitOutput(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}

func (p *publication) checkVersion(context.Context) (string, error) {
	if !semver.IsValid(p.version) || semver.Canonical(p.version) != p.version {
		return "", fmt.Errorf("%q is no version. Give one such as VERSION=0.1.0", p.version)
	}
	if major := semver.Major(p.version); major != "v0" && major != "v1" {
		return "", fmt.Errorf("modules of %s need /%s at the end of their paths first", p.version, major)
	}
	return " (" + p.version + ")", nil
}

func (p *publication) checkClean(ctx context.Context) (string, error) {
	changed, err := p.git(ctx, "status", "--porcelain")
	if err == nil && changed != "" {
		err = fmt.Errorf("the working tree has changes. Commit them first:\n%s", changed)
	}
	return "", err
}

// checkMain fails if HEAD is not the main branch of the remote. CI has tested the commits of that
// branch.
func (p *publication) checkMain(ctx context.Context) (string, error) {
	head, err := p.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	line, err := p.git(ctx, "ls-remote", p.remote, "refs/heads/main")
	if err != nil {
		return "", err
	}
	if at, _, _ := strings.Cut(line, "\t"); at != head {
		return "", fmt.Errorf("HEAD is %s, and main of %s is %q. Check out main, and push or pull first", head, p.remote, at)
	}
	return " (" + head[:12] + ")", nil
}

// checkChangelog fails if the changelog has no section of the version with today's date, in UTC.
func (p *publication) checkChangelog(context.Context) (string, error) {
	_, err := p.notes()
	return "", err
}

// notes returns the section of the version in the changelog.
func (p *publication) notes() (string, error) {
	text, err := os.ReadFile(filepath.Join(p.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	heading := "\n## " + p.version[1:] + " - "
	_, rest, ok := strings.Cut(string(text), heading)
	if !ok {
		return "", fmt.Errorf("CHANGELOG.md has no section %q. Run make release-prepare VERSION=%s, and commit", heading[1:]+p.today, p.version[1:])
	}
	date, rest, _ := strings.Cut(rest, "\n")
	if p.today != "" && date != p.today {
		return "", fmt.Errorf("the section of %s in CHANGELOG.md has the date %s, and today is %s (UTC). Correct it, and commit", p.version[1:], date, p.today)
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	if strings.TrimSpace(section) == "" {
		return "", fmt.Errorf("the section of %s in CHANGELOG.md is empty", p.version[1:])
	}
	return strings.TrimSpace(section) + "\n", nil
}

// writeNotes writes the section of the version to a file, whichever date it has.
func (p *publication) writeNotes(file string) error {
	p.today = ""
	notes, err := p.notes()
	if err != nil {
		return err
	}
	return put(file, []byte(notes))
}

// checkReleasedAPI fails if api/released.txt is not the API of this release.
func (p *publication) checkReleasedAPI(context.Context) (string, error) {
	changed, err := p.next()
	if err == nil && len(changed) > 0 {
		err = fmt.Errorf("%s is not the API of this release. Run make release-prepare VERSION=%s, and commit", releasedFile, p.version[1:])
	}
	return "", err
}

// makeCommit commits the tree of the version in a worktree of its own, above HEAD. The same HEAD
// and version give the same commit, so a release that was cut off can go on.
func (p *publication) makeCommit(ctx context.Context, work string) (string, error) {
	t := tree{dir: filepath.Join(work, "modules"), proxy: filepath.Join(work, "proxy"), version: p.version}
	var err error
	if t.sums, err = p.writeTree(ctx, t.dir, t.proxy, p.version); err != nil {
		return "", err
	}
	checkout := filepath.Join(work, "commit")
	if _, err := p.git(ctx, "worktree", "add", "--quiet", "--detach", checkout, "HEAD"); err != nil {
		return "", err
	}
	if err := p.replaceFiles(ctx, t, checkout); err != nil {
		return "", err
	}
	date, err := p.git(ctx, "log", "-1", "--format=%cI")
	if err != nil {
		return "", err
	}
	if _, err := gitOutput(ctx, checkout, nil, "add", "--all"); err != nil {
		return "", err
	}
	env := []string{"GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}
	if _, err := gitOutput(ctx, checkout, env, "commit", "--quiet", "--no-gpg-sign", "--message", "Release "+p.version); err != nil {
		return "", err
	}
	if p.commit, err = gitOutput(ctx, checkout, nil, "rev-parse", "HEAD"); err != nil {
		return "", err
	}
	// A clone with the same objects: zip.CreateFromVCS knows no worktree.
	clone := filepath.Join(work, "clone")
	if _, err := p.git(ctx, "clone", "--quiet", "--shared", "--no-checkout", ".", clone); err != nil {
		return "", err
	}
	return " (" + p.commit[:12] + ")", p.checkHashes(t, clone)
}

// replaceFiles writes to the checkout the files that differ in the tree of a version. The modules
// that are not released keep their replace lines, and require the version.
func (p *publication) replaceFiles(ctx context.Context, t tree, checkout string) error {
	for _, folder := range p.modules {
		for _, name := range []string{"go.mod", "go.sum", "LICENSE"} {
			text, err := os.ReadFile(filepath.Join(t.dir, folder, name))
			if err == nil {
				err = put(filepath.Join(checkout, folder, name), text)
			}
			if err != nil {
				return err
			}
		}
	}
	list, err := p.git(ctx, "ls-files", "*go.mod")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(list) {
		if slices.Contains(p.modules, path.Dir(name)) || path.Base(name) != "go.mod" {
			continue
		}
		f, err := p.mod(path.Dir(name))
		if err != nil {
			return err
		}
		if err := p.requireVersion(f); err != nil {
			return err
		}
		text, err := f.Format()
		if err == nil {
			err = put(filepath.Join(checkout, name), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// requireVersion makes a go.mod require the released modules in the version.
func (p *publication) requireVersion(f *modfile.File) error {
	for _, req := range ownRequirements(f) {
		if at, _ := folderOf(req.Path); slices.Contains(p.modules, at) {
			if err := f.AddRequire(req.Path, p.version); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkHashes fails if the zip that the go command would make from the commit has another hash than
// that in a go.sum.
func (p *publication) checkHashes(t tree, clone string) error {
	for _, folder := range p.modules {
		m := module.Version{Path: pathOf(folder), Version: p.version}
		file := filepath.Join(clone+".zip", filepath.FromSlash(folder), "module.zip")
		if err := put(file, nil); err != nil {
			return err
		}
		out, err := os.Create(file)
		if err != nil {
			return err
		}
		err = zip.CreateFromVCS(out, m, clone, p.commit, strings.TrimPrefix(folder, "."))
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
		hash, err := dirhash.HashZip(file, dirhash.Hash1)
		if err != nil {
			return err
		}
		if !slices.Contains(t.sums[m.Path], m.Path+" "+p.version+" "+hash) {
			return fmt.Errorf("the zip of %s has the hash %s, and the go.sum lines are %q", m.Path, hash, t.sums[m.Path])
		}
	}
	return nil
}

// tag returns the tag of a module.
func (p *publication) tag(folder string) string { return path.Join(folder, p.version) }

// checkTags prints the tags in the order of dependencies. It fails if one is at another commit.
func (p *publication) checkTags(ctx context.Context) (string, error) {
	var err error
	if p.order, err = p.ordered(); err != nil {
		return "", err
	}
	there, err := p.remoteTags(ctx)
	if err != nil {
		return "", err
	}
	note := ""
	for _, folder := range p.order {
		tag := p.tag(folder)
		at, ok := there[tag]
		if ok && at != p.commit {
			return "", fmt.Errorf("%s has the tag %s at %s, not at %s. A tag is never moved: choose the next version", p.remote, tag, at, p.commit)
		}
		note += "\n  " + tag
		if ok {
			note += " (already pushed)"
		}
	}
	return note, nil
}

// remoteTags returns the commits of the remote's tags.
func (p *publication) remoteTags(ctx context.Context) (map[string]string, error) {
	list, err := p.git(ctx, "ls-remote", "--tags", p.remote)
	if err != nil {
		return nil, err
	}
	tags := make(map[string]string)
	for line := range strings.Lines(list) {
		commit, ref, _ := strings.Cut(strings.TrimSpace(line), "\t")
		tag := strings.TrimPrefix(ref, "refs/tags/")
		if peeled, ok := strings.CutSuffix(tag, "^{}"); ok { // the commit of an annotated tag
			tags[peeled] = commit
		} else if _, seen := tags[tag]; !seen {
			tags[tag] = commit
		}
	}
	return tags, nil
}

// pushTags makes and pushes the tags, one after another: GitHub starts no workflow for a push of
// more than three tags. A module is there before the modules that require it.
func (p *publication) pushTags(ctx context.Context) error {
	there, err := p.remoteTags(ctx)
	if err != nil {
		return err
	}
	for _, folder := range p.order {
		tag := p.tag(folder)
		if there[tag] == p.commit {
			continue
		}
		// A tag of a release that was cut off may be here, and not at the remote.
		if _, err := p.git(ctx, "tag", "--force", "--annotate", "--message", "Release "+p.version, tag, p.commit); err != nil {
			return err
		}
		if _, err := p.git(ctx, "push", "--quiet", p.remote, "refs/tags/"+tag); err != nil {
			return fmt.Errorf("%w\nRun the same command again: it goes on with this tag", err)
		}
		fmt.Printf("pushed %s\n", tag)
	}
	return nil
}

// prepare makes the changes of a release in the working tree: the changelog's section of the
// version, and the API of now as that of the last release. A person commits them.
func (p *publication) prepare(ctx context.Context) error {
	if _, err := p.checkVersion(ctx); err != nil {
		return err
	}
	if err := p.checkAPI(); err != nil {
		return err
	}
	file := filepath.Join(p.root, "CHANGELOG.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	section, err := unreleased(string(text))
	if err != nil {
		return err
	}
	if strings.TrimSpace(section) == "" {
		return errors.New("section Unreleased of CHANGELOG.md is empty: there is nothing to release")
	}
	now, err := p.api()
	if err != nil {
		return err
	}
	heading := "\n## Unreleased\n"
	dated := strings.Replace(string(text), heading, heading+"\n## "+p.version[1:]+" - "+p.today+"\n", 1)
	return errors.Join(put(file, []byte(dated)), p.write(releasedFile, now), p.write(nextFile, nil))
}

// utcDate returns the day in UTC, which the changelog and the proxy use.
func utcDate(t time.Time) string { return t.UTC().Format(time.DateOnly) }
