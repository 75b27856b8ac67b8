package main

import (
	"archive/zip"
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
	"regexp"
	"strings"
)

// ownReplace matches a replace line of one of our modules, alone or in a block.
var (
	ownReplace   = regexp.MustCompile(`(?m)^(?:replace |\t)` + regexp.QuoteMeta(modulePath) + `\S* => \.\S*\n`)
	emptyReplace = regexp.MustCompile(`(?m)^replace \(\s*\)\n`)
	ownRequire   = regexp.MustCompile(`(?m)^((?:require |\t)` + regexp.QuoteMeta(modulePath) + `\S*) v\S+`)
	anyReplace   = regexp.MustCompile(`(?m)^replace\b`)
)

// released makes the go.mod of a version: no replace lines, and our modules in that version.
func released(mod, version string) (string, error) {
	mod = emptyReplace.ReplaceAllString(ownReplace.ReplaceAllString(mod, ""), "")
	if anyReplace.MatchString(mod) {
		return "", errors.New("go.mod has a replace line that is not one of this repository's modules")
	}
	return ownRequire.ReplaceAllString(mod, "$1 "+version), nil
}

// writeTree copies the files of the modules that git knows, with the go.mod of the version.
func (r repo) writeTree(ctx context.Context, dir, version string) error {
	for _, module := range r.modules {
		list, err := exec.CommandContext(ctx, "git", "-C", filepath.Join(r.root, module), "ls-files", "-z").Output()
		if err != nil {
			return fmt.Errorf("files of %s: %w", module, err)
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
			if r.nested(module, name) {
				continue
			}
			if err := r.copyFile(dir, path.Join(module, name), version); err != nil {
				return err
			}
		}
	}
	return nil
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

func (r repo) copyFile(dir, name, version string) error {
	text, err := os.ReadFile(filepath.Join(r.root, name))
	if errors.Is(err, os.ErrNotExist) { // deleted, and not committed yet
		return nil
	} else if err != nil {
		return err
	}
	if path.Base(name) == "go.mod" {
		mod, err := released(string(text), version)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		text = []byte(mod)
	}
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// checkTree makes a version as users will get it, serves it as a module proxy does, and builds a
// program that imports it.
func (r repo) checkTree(ctx context.Context) (err error) {
	work, err := os.MkdirTemp("", "idem-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	tree, proxy, user := filepath.Join(work, "tree"), filepath.Join(work, "proxy"), filepath.Join(work, "user")
	if err := r.writeTree(ctx, tree, "v0.0.0"); err != nil {
		return err
	}
	hash, err := hashOf(tree)
	if err != nil {
		return err
	}
	// The contents name the version: the module cache never has two contents of one version.
	version := "v0.0.0-check." + hash
	if err := r.writeTree(ctx, tree, version); err != nil {
		return err
	}
	for _, module := range r.modules {
		if err := pack(tree, proxy, module, version); err != nil {
			return err
		}
	}
	upstream, err := goOutput(ctx, r.root, nil, "env", "GOPROXY")
	if err != nil {
		return err
	}
	env := []string{
		"GOWORK=off", "GOFLAGS=-mod=mod", "GONOSUMDB=" + modulePath + "," + modulePath + "/*", "GONOPROXY=none", "GOPRIVATE=",
		"GOPROXY=file://" + filepath.ToSlash(proxy) + "," + strings.TrimSpace(upstream),
	}
	defer func() { err = errors.Join(err, r.forget(ctx, version)) }()
	return r.useModules(ctx, user, version, env)
}

// useModules builds a program of somebody else.
func (r repo) useModules(ctx context.Context, dir, version string, env []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mod := "module example.org/user\n\ngo 1.26.0\n\nrequire (\n"
	patterns := []string{"build"}
	for _, module := range r.modules {
		p := path.Join(modulePath, module)
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
		p := path.Join(modulePath, module)
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

// pack writes a module in the layout of a module proxy.
func pack(tree, proxy, module, version string) (err error) {
	p := path.Join(modulePath, module)
	at := filepath.Join(proxy, filepath.FromSlash(p), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(tree, module, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": version})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{version + ".mod": mod, version + ".info": info, "list": []byte(version + "\n")} {
		if err := os.WriteFile(filepath.Join(at, name), text, 0o644); err != nil {
			return err
		}
	}
	out, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	z := zip.NewWriter(out)
	if err := zipFiles(z, filepath.Join(tree, module), p+"@"+version+"/"); err != nil {
		return err
	}
	return z.Close()
}

// zipFiles adds the files of a module without those of modules below.
func zipFiles(z *zip.Writer, top, prefix string) error {
	return filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil && p != top {
				return filepath.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(top, p)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		w, err := z.Create(prefix + filepath.ToSlash(name))
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
}

// hashOf returns a hash of all files of a tree.
func hashOf(tree string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(tree, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		if err == nil {
			_, err = fmt.Fprintf(h, "%s %d\n%s", p[len(tree):], len(text), text)
		}
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil))[:12], err
}

// goOutput runs the go command, and returns what it printed.
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
