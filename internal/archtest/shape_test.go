package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// files returns the paths, from the root of the project, of all files with that ending, of every
// module.
func files(t *testing.T, ending string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "." && d.Name() != "..",
			d.IsDir() && d.Name() == "node_modules": // of others
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ending):
			rel, err := filepath.Rel(root, path)
			paths = append(paths, rel)
			return err
		}
		return nil
	}))
	require.NotEmpty(t, paths)
	return paths
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return b
}

// trees has the results of parsed, by path. The tests of this package run one after the other.
var trees = map[string]*ast.File{}

// parsed returns the syntax tree of a file, with comments.
func parsed(t *testing.T, path string) *ast.File {
	t.Helper()
	if tree := trees[path]; tree != nil {
		return tree
	}
	tree, err := parser.ParseFile(token.NewFileSet(), path, read(t, path),
		parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	trees[path] = tree
	return tree
}

func TestFilesAreShort(t *testing.T) {
	for _, f := range files(t, ".go") {
		require.LessOrEqual(t, bytes.Count(read(t, f), []byte("\n")), 600, "%s: is it one job?", f)
	}
}

// Every exported name of a library has a comment, and every package has one package comment.
func TestEverythingExportedIsDocumented(t *testing.T) {
	packageDocs := map[string]int{}
	for _, f := range files(t, ".go") {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		file := parsed(t, f)
		dir := filepath.Dir(f)
		packageDocs[dir] += 0
		if file.Doc != nil {
			packageDocs[dir]++
		}
		if file.Name.Name == "main" {
			continue
		}
		for _, d := range file.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s: %s has no documentation", f, name)
			}
		}
	}
	for dir, n := range packageDocs {
		if n != 1 {
			t.Errorf("%s has %d package comments", dir, n)
		}
	}
}

// A comment of a declaration that begins in lower case begins with the name that is declared. Else
// the comment has the name of before.
func TestCommentsNameTheirDeclaration(t *testing.T) {
	for _, f := range files(t, ".go") {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		file := parsed(t, f)
		for _, d := range file.Decls {
			doc, names := commentOf(d)
			word := strings.TrimRight(strings.SplitN(doc.Text(), " ", 2)[0], ".,:;'")
			if len(names) > 0 && word != "" && unicode.IsLower(rune(word[0])) && !slices.Contains(names, word) {
				t.Errorf("%s: the comment of %s begins with %q", f, names[0], word)
			}
		}
	}
}

// commentOf returns the comment of a declaration of its own, and the declared names.
func commentOf(d ast.Decl) (doc *ast.CommentGroup, names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Doc, []string{d.Name.Name}
	case *ast.GenDecl:
		if d.Lparen.IsValid() {
			return nil, nil
		}
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			return d.Doc, []string{s.Name.Name}
		case *ast.ValueSpec:
			for _, n := range s.Names {
				names = append(names, n.Name)
			}
			return d.Doc, names
		}
	}
	return nil, nil
}

func undocumented(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && (d.Recv == nil || receiverExported(d.Recv)) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			names = append(names, undocumentedSpec(d, s)...)
		}
	}
	return names
}

func undocumentedSpec(d *ast.GenDecl, s ast.Spec) (names []string) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
			names = append(names, s.Name.Name)
		}
	case *ast.ValueSpec:
		for _, n := range s.Names {
			if n.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

func receiverExported(recv *ast.FieldList) bool {
	typ := recv.List[0].Type
	for {
		switch e := typ.(type) {
		case *ast.StarExpr:
			typ = e.X
		case *ast.IndexExpr:
			typ = e.X
		case *ast.IndexListExpr:
			typ = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return false
		}
	}
}

var idPattern = regexp.MustCompile(`\b(?:[KPRTOHG]-\d{2}|[Rr]ules? \d{1,2})\b`)

// An id that code, tests or documents name has its row in docs/failure-modes.md: the case, the
// behaviour of Idem, the test.
func TestEveryIDHasItsRow(t *testing.T) {
	rows := map[string]bool{}
	for _, line := range strings.Split(string(read(t, "docs/failure-modes.md")), "\n") {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			rows[strings.TrimSpace(cells[1])] = true
		}
	}
	named := map[string]string{}
	for _, ending := range []string{".go", ".md", ".sql", ".lua", ".sh"} {
		for _, f := range files(t, ending) {
			for line := range strings.Lines(string(read(t, f))) {
				if !strings.Contains(line, "-") && !strings.Contains(line, "ule") {
					continue // far faster than the pattern, which needs one of them
				}
				for _, id := range idPattern.FindAllString(line, -1) {
					named[strings.Replace(strings.ToLower(id[:1])+id[1:], "rules ", "rule ", 1)] = f
				}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(named)) {
		want := id
		if !strings.HasPrefix(id, "rule ") {
			want = strings.ToUpper(id[:1]) + id[1:]
		}
		if !rows[want] {
			t.Errorf("%s, named in %s, has no row in docs/failure-modes.md", want, named[id])
		}
	}
}

// Every test that docs/failure-modes.md names exists, and so does every case of the conformance
// kit. A package without names has at least one test with the id of the row. Each id has one row.
func TestEveryRowsTestsExist(t *testing.T) {
	tests, cases := declaredTests(t), map[string]map[string]bool{"storetest": kitCases(t, "storetest"), "outboxtest": kitCases(t, "outboxtest")}
	seen := map[string]bool{}
	for _, line := range strings.Split(string(read(t, "docs/failure-modes.md")), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !idPattern.MatchString(cells[1]) {
			continue
		}
		id := strings.TrimSpace(cells[1])
		if len(cells) != 6 {
			t.Errorf("%s: the row has %d cells instead of 4", id, len(cells)-2)
			continue
		}
		if seen[id] {
			t.Errorf("%s has two rows", id)
		}
		seen[id] = true
		for _, group := range strings.Split(cells[4], ";") {
			if problem := missingTest(id, strings.TrimSpace(group), tests, cases); problem != "" {
				t.Errorf("%s: %s", id, problem)
			}
		}
	}
	require.Greater(t, len(seen), 50, "no rows found")
}

var (
	testName = regexp.MustCompile(`\b(?:Test|Fuzz)\w*\*?`)
	kitCase  = regexp.MustCompile("`([^`]+)`")
)

// missingTest returns the fault of one group of a cell, such as "lane: TestA, TestB*" or "lane,
// consumer"; empty if the group is right. A group that begins with "none yet" is always right.
func missingTest(id, group string, tests map[string]map[string]bool, cases map[string]map[string]bool) string {
	if strings.HasPrefix(group, "none yet") {
		return ""
	}
	pkg, names, ok := strings.Cut(group, ": ")
	if !ok {
		return packageWithoutTest(id, group, tests, cases)
	}
	declared, pattern, index := tests[pkg], testName, 0
	if kit := cases[pkg]; kit != nil {
		declared, pattern, index = kit, kitCase, 1
	}
	found := pattern.FindAllStringSubmatch(names, -1)
	if len(found) == 0 {
		return "no test named in " + group
	}
	for _, f := range found {
		if !anyNamed(declared, f[index]) {
			return "there is no " + pkg + ": " + f[index]
		}
	}
	return ""
}

// packageWithoutTest returns the first package of a group that has no test with the id in its name.
func packageWithoutTest(id, group string, tests map[string]map[string]bool, cases map[string]map[string]bool) string {
	name := regexp.MustCompile("_" + strings.ReplaceAll(strings.ReplaceAll(id, "rule ", "Rule"), "-", "") + `(?:\D|$)`)
	kit := regexp.MustCompile(`\(.*\b` + strings.TrimPrefix(id, "rule ") + `[a-d]?\b.*\)$`)
	for _, pkg := range strings.Split(group, ", ") {
		declared, pattern := tests[pkg], name
		if of := cases[pkg]; of != nil {
			declared, pattern = of, kit
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(declared)), pattern.MatchString) {
			return "no test of " + pkg + " has the id in its name"
		}
	}
	return ""
}

// anyNamed reports whether a test has that name, or begins with the name in front of a "*".
func anyNamed(declared map[string]bool, name string) bool {
	prefix, glob := strings.CutSuffix(name, "*")
	if !glob {
		return declared[name]
	}
	for d := range declared {
		if strings.HasPrefix(d, prefix) {
			return true
		}
	}
	return false
}

// declaredTests are the tests and fuzz tests of each package, by the name of its directory.
func declaredTests(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, f := range files(t, "_test.go") {
		pkg := filepath.Base(filepath.Dir(f))
		if pkg == "." {
			pkg = "idem"
		}
		if all[pkg] == nil {
			all[pkg] = map[string]bool{}
		}
		file, err := parser.ParseFile(token.NewFileSet(), f, read(t, f), parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				all[pkg][fn.Name.Name] = true
			}
		}
	}
	return all
}

// kitCases are the names of a conformance kit's cases.
func kitCases(t *testing.T, kit string) map[string]bool {
	t.Helper()
	name := regexp.MustCompile(`\{name: "([^"]+)"`)
	cases := map[string]bool{}
	for _, f := range files(t, ".go") {
		if filepath.Base(filepath.Dir(f)) != kit {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(string(read(t, f)), -1) {
			cases[m[1]] = true
		}
	}
	require.NotEmpty(t, cases)
	return cases
}

// The README is short in lines and columns, and shows code early.
func TestREADME(t *testing.T) {
	lines := strings.Split(string(read(t, "README.md")), "\n")
	require.LessOrEqual(t, len(lines), 151) // the last one is empty
	first := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "```go") })
	require.True(t, first >= 0 && first < 25, "first code in line %d", first+1)
	for i, l := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(l), 100, "line %d", i+1)
	}
}

// The code of the README and of the overview is that of Examples, and of a
// program, that tests run.
func TestCodeOfFirstPagesRuns(t *testing.T) {
	var examples strings.Builder
	for _, f := range files(t, "_test.go") {
		if strings.Contains(filepath.Base(f), "example") {
			examples.WriteString(squeeze(string(read(t, f))))
		}
	}
	examples.WriteString(squeeze(string(read(t, "examples/quickstart/main.go"))))
	for _, page := range []string{"README.md", "docs/overview.md"} {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(read(t, page)), -1)
		require.NotEmpty(t, blocks, page)
		for _, block := range blocks {
			require.Contains(t, examples.String(), squeeze(block[1]), "this code of %s stands in no Example", page)
		}
	}
}

// squeeze removes the blanks and line ends that gofmt decides.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
