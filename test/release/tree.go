package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// A tree has the released modules in one version, as users get them.
type tree struct {
	dir     string
	version string
	proxy   string              // the modules in the layout of a module proxy
	sums    map[string][]string // lines of go.sum, by path of a module
}

// tree writes a version to a folder.
func (r repo) tree(ctx context.Context, dir, version string) (err error) {
	proxy, err := os.MkdirTemp("", "idem-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(proxy)) }()
	_, err = r.writeTree(ctx, dir, proxy, version)
	return err
}

// writeTree copies the files of the modules that git knows, with the go.mod and go.sum of the
// version. It packs each module into the folder proxy, as the go command would from the tag. It
// returns the lines of go.sum by path of the module.
func (r repo) writeTree(ctx context.Context, dir, proxy, version string) (sums map[string][]string, err error) {
	order, err := r.ordered()
	if err != nil {
		return nil, err
	}
	t := tree{dir: dir, version: version, proxy: proxy, sums: make(map[string][]string)}
	for _, folder := range order {
		if err := r.copyModule(ctx, t, folder); err != nil {
			return nil, err
		}
		if err := t.pack(folder); err != nil {
			return nil, fmt.Errorf("pack %s: %w", folder, err)
		}
	}
	return t.sums, nil
}

// copyModule writes the files of one module.
func (r repo) copyModule(ctx context.Context, t tree, folder string) error {
	list, err := exec.CommandContext(ctx, "git", "-C", filepath.Join(r.root, folder), "ls-files", "-z").Output()
	if err != nil {
		return fmt.Errorf("files of %s: %w", folder, err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if r.nested(folder, name) || name == "go.mod" || name == "go.sum" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.root, folder, name))
		if errors.Is(err, os.ErrNotExist) { // deleted, and not committed yet
			continue
		}
		if err == nil {
			err = put(filepath.Join(t.dir, folder, name), text)
		}
		if err != nil {
			return err
		}
	}
	return r.releaseModule(t, folder)
}

// releaseModule writes the files of a module that differ in a version: go.mod, go.sum, and the
// licence, which only the root has in the repository.
func (r repo) releaseModule(t tree, folder string) error {
	f, err := r.mod(folder)
	if err != nil {
		return err
	}
	if err := r.released(folder, f, t.version); err != nil {
		return err
	}
	mod, err := f.Format()
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(r.root, folder, "go.sum"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	dir := filepath.Join(t.dir, folder)
	return errors.Join(
		put(filepath.Join(dir, "go.mod"), mod),
		put(filepath.Join(dir, "go.sum"), withSums(sum, f, t.sums)),
		put(filepath.Join(dir, "LICENSE"), licence),
	)
}

func put(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// nested reports whether the file is one of a module below the module.
func (r repo) nested(module, name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(r.root, module, dir, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// checkTree makes a version as users will get it, serves it as a module proxy does, and builds a
// program that imports it.
func (r repo) checkTree(ctx context.Context) (err error) {
	work, err := os.MkdirTemp("", "idem-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	first, tree, proxy, user := filepath.Join(work, "first"), filepath.Join(work, "tree"), filepath.Join(work, "proxy"), filepath.Join(work, "user")
	if _, err := r.writeTree(ctx, first, filepath.Join(work, "unused"), "v0.0.0"); err != nil {
		return err
	}
	hash, err := dirhash.HashDir(first, "", dirhash.Hash1)
	if err != nil {
		return err
	}
	// The contents name the version: the module cache never has two contents of one version.
	version := fmt.Sprintf("v0.0.0-check.x%x", sha256.Sum256([]byte(hash)))[:len("v0.0.0-check.x")+12]
	if _, err := r.writeTree(ctx, tree, proxy, version); err != nil {
		return err
	}
	upstream, err := goOutput(ctx, r.root, nil, "env", "GOPROXY")
	if err != nil {
		return err
	}
	env := []string{
		"GOWORK=off", "GOFLAGS=", "GONOSUMDB=" + modulePath + "," + modulePath + "/*", "GONOPROXY=none", "GOPRIVATE=",
		"GOPROXY=file://" + filepath.ToSlash(proxy) + "," + strings.TrimSpace(upstream),
	}
	defer func() { err = errors.Join(err, r.forget(ctx, version)) }()
	if err := r.loadTree(ctx, tree, env); err != nil {
		return err
	}
	return r.useModules(ctx, user, version, env)
}

// loadTree fails if a go.mod or go.sum of the tree lacks a line that the packages and tests of the
// module need.
func (r repo) loadTree(ctx context.Context, dir string, env []string) (found error) {
	for _, folder := range r.modules {
		_, err := goOutput(ctx, filepath.Join(dir, folder), env, "list", "-deps", "-test", "./...")
		found = errors.Join(found, err)
	}
	return found
}

// useModules builds all packages of the released modules in a module that requires them.
func (r repo) useModules(ctx context.Context, dir, version string, env []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mod := "module example.org/user\n\ngo 1.26.0\n\nrequire (\n"
	patterns := []string{"build", "-mod=mod"}
	for _, module := range r.modules {
		p := pathOf(module)
		mod += "\t" + p + " " + version + "\n"
		patterns = append(patterns, p+"/...")
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod+")\n"), 0o644); err != nil {
		return err
	}
	_, err := goOutput(ctx, dir, env, patterns...)
	return err
}

// forget removes the version from the module cache.
func (r repo) forget(ctx context.Context, version string) error {
	cache, err := goOutput(ctx, r.root, nil, "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	cache = strings.TrimSpace(cache)
	for _, module := range r.modules {
		p := pathOf(module)
		files, err := filepath.Glob(filepath.Join(cache, "cache", "download", p, "@v", version+".*"))
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
		dir := filepath.Join(cache, p+"@"+version)
		err = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chmod(p, 0o755) // the cache is read-only
			}
			return err
		})
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// pack writes a module in the layout of a module proxy, and adds its hashes to the sums.
func (t tree) pack(folder string) (err error) {
	p := pathOf(folder)
	at := filepath.Join(t.proxy, filepath.FromSlash(p), "@v", t.version)
	mod, err := os.ReadFile(filepath.Join(t.dir, folder, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": t.version})
	if err != nil {
		return err
	}
	err = errors.Join(
		put(at+".mod", mod), put(at+".info", info), put(filepath.Join(filepath.Dir(at), "list"), []byte(t.version+"\n")),
	)
	if err != nil {
		return err
	}
	out, err := os.Create(at + ".zip")
	if err != nil {
		return err
	}
	err = zip.CreateFromDir(out, module.Version{Path: p, Version: t.version}, filepath.Join(t.dir, folder))
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return t.sum(p, at+".zip", mod)
}

// sum adds the lines of go.sum for a packed module.
func (t tree) sum(p, zipFile string, mod []byte) error {
	whole, err := dirhash.HashZip(zipFile, dirhash.Hash1)
	if err != nil {
		return err
	}
	only, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(mod)), nil
	})
	t.sums[p] = []string{p + " " + t.version + " " + whole, p + " " + t.version + "/go.mod " + only}
	return err
}

// goOutput runs the go command, and returns the output.
func goOutput(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = io.Writer(&out), &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s in %s: %w\n%s%s", args[0], dir, err, out.String(), errs.String())
	}
	return out.String(), nil
}
