package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// folderOf returns the folder of one of our modules.
func folderOf(modPath string) (folder string, ours bool) {
	if modPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(modPath, modulePath+"/")
}

// pathOf returns the path of the module in a folder.
func pathOf(folder string) string { return path.Join(modulePath, folder) }

// mod reads the go.mod of a module.
func (r repo) mod(folder string) (*modfile.File, error) {
	name := filepath.Join(r.root, folder, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}

// released makes the go.mod of a version of a released module: no replace lines, and our modules in
// that version.
func (r repo) released(folder string, f *modfile.File, version string) error {
	var found error
	for _, rep := range slices.Clone(f.Replace) {
		at, ours := folderOf(rep.Old.Path)
		if !ours || rep.New.Version != "" || path.Join(folder, rep.New.Path) != path.Clean(at) {
			found = errors.Join(found, fmt.Errorf(
				"%s/go.mod replaces %s by %s: users build without replace lines. Remove the line, and require a released version",
				folder, rep.Old.Path, rep.New.Path))
			continue
		}
		if err := f.DropReplace(rep.Old.Path, rep.Old.Version); err != nil {
			return err
		}
	}
	for _, req := range ownRequirements(f) {
		at, _ := folderOf(req.Path)
		if !slices.Contains(r.modules, at) {
			found = errors.Join(found, fmt.Errorf(
				"%s/go.mod requires %s, which is not released. Add its folder to LIBRARIES in the Makefile", folder, req.Path))
			continue
		}
		if err := f.AddRequire(req.Path, version); err != nil {
			return err
		}
	}
	f.Cleanup()
	return found
}

// ownRequirements returns our modules that a go.mod requires.
func ownRequirements(f *modfile.File) (own []module.Version) {
	for _, req := range f.Require {
		if _, ours := folderOf(req.Mod.Path); ours {
			own = append(own, req.Mod)
		}
	}
	return own
}

// checkReplace fails if a released module has a replace line that its users would miss.
func (r repo) checkReplace() (found error) {
	for _, folder := range r.modules {
		f, err := r.mod(folder)
		if err == nil {
			err = r.released(folder, f, "v0.0.0")
		}
		found = errors.Join(found, err)
	}
	return found
}

// ordered returns the modules, each behind those that it requires. Tags are pushed in this order,
// and the go.sum of a module has the hashes of the modules before it.
func (r repo) ordered() ([]string, error) {
	requires := make(map[string][]string)
	for _, folder := range r.modules {
		f, err := r.mod(folder)
		if err != nil {
			return nil, err
		}
		for _, req := range ownRequirements(f) {
			at, _ := folderOf(req.Path)
			requires[folder] = append(requires[folder], at)
		}
	}
	var order []string
	for left := slices.Sorted(slices.Values(r.modules)); len(left) > 0; {
		i := slices.IndexFunc(left, func(folder string) bool {
			return !slices.ContainsFunc(requires[folder], func(at string) bool { return slices.Contains(left, at) })
		})
		if i < 0 {
			return nil, fmt.Errorf("modules require each other in a circle: %s", strings.Join(left, ", "))
		}
		order = append(order, left[i])
		left = slices.Delete(left, i, i+1)
	}
	return order, nil
}

// withSums adds lines to the text of a go.sum, in the order of the go command.
func withSums(text []byte, mod *modfile.File, sums map[string][]string) []byte {
	lines := strings.FieldsFunc(string(text), func(c rune) bool { return c == '\n' })
	for _, req := range ownRequirements(mod) {
		lines = append(lines, sums[req.Path]...)
	}
	slices.SortFunc(lines, bySum)
	return []byte(strings.Join(slices.Compact(lines), "\n") + "\n")
}

// bySum orders lines of go.sum by path and version.
func bySum(a, b string) int {
	split := func(line string) module.Version {
		f := strings.Fields(line)
		return module.Version{Path: f[0], Version: f[1]}
	}
	both := []module.Version{split(a), split(b)}
	if both[0] == both[1] {
		return bytes.Compare([]byte(a), []byte(b))
	}
	module.Sort(both)
	if both[0] == split(a) {
		return -1
	}
	return 1
}
