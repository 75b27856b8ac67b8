package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// modulePath is that of the root module; those of the others have their folder behind it.
const modulePath = "github.com/idem-go/idem"

// api lists the exported declarations of modules, a line each, sorted. Files of every platform
// count. An alias of a type in an internal package has the lines of that type too.
func (r repo) api() ([]string, error) {
	l := listing{
		fset: token.NewFileSet(), seen: make(map[string]bool),
		internal: make(map[string][]string), aliases: make(map[string][]string),
	}
	for _, module := range r.modules {
		if err := r.walk(module, l.add); err != nil {
			return nil, err
		}
	}
	l.resolve()
	lines := make([]string, 0, len(l.seen))
	for line := range l.seen {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines, nil
}

// walk calls f with the Go files of a module, but not with tests and not with nested modules.
func (r repo) walk(module string, f func(dir, file string) error) error {
	top := filepath.Join(r.root, module)
	return filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			_, missing := os.Stat(filepath.Join(p, "go.mod"))
			if p != top && (missing == nil || name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		dir, err := filepath.Rel(r.root, filepath.Dir(p))
		if err != nil {
			return err
		}
		return f(filepath.ToSlash(dir), p)
	})
}

// listing collects lines.
type listing struct {
	fset     *token.FileSet
	seen     map[string]bool
	internal map[string][]string // by folder and type
	aliases  map[string][]string // by folder and type: the packages that give it another name
}

func (l *listing) add(dir, file string) error {
	f, err := parser.ParseFile(l.fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if f.Name.Name == "main" {
		return nil
	}
	pkg := packageLines{listing: l, dir: dir, imports: make(map[string]string)}
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		pkg.imports[name] = p
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			pkg.function(d)
		case *ast.GenDecl:
			pkg.general(d)
		}
	}
	return nil
}

// resolve adds the lines of internal types that aliases show.
func (l *listing) resolve() {
	for of, packages := range l.aliases {
		for _, line := range l.internal[of] {
			for _, pkg := range packages {
				l.seen["pkg "+pkg+", through an alias: "+line] = true
			}
		}
	}
}

// packageLines are those of one file.
type packageLines struct {
	*listing
	dir     string
	imports map[string]string // by name: path
}

// line adds a line of a type, or of the package if typ is empty.
func (p packageLines) line(typ, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if slices.Contains(strings.Split(p.dir, "/"), "internal") {
		if typ != "" {
			p.internal[p.dir+"."+typ] = append(p.internal[p.dir+"."+typ], text)
		}
		return
	}
	p.seen["pkg "+p.dir+", "+text] = true
}

func (p packageLines) function(d *ast.FuncDecl) {
	if !d.Name.IsExported() {
		return
	}
	d.Body, d.Doc = nil, nil
	typ := ""
	if d.Recv != nil {
		if typ = receiver(d.Recv.List[0].Type); !ast.IsExported(typ) {
			return
		}
		for _, f := range d.Recv.List {
			f.Names = nil
		}
	}
	p.line(typ, "%s", p.text(d))
}

// receiver returns the name of the type of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	}
	return ""
}

func (p packageLines) general(d *ast.GenDecl) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				p.typ(s)
			}
		case *ast.ValueSpec:
			for i, name := range s.Names {
				if name.IsExported() {
					p.value(d.Tok, s, i)
				}
			}
		}
	}
}

func (p packageLines) value(kind token.Token, s *ast.ValueSpec, i int) {
	text := s.Names[i].Name
	if s.Type != nil {
		text += " " + p.text(s.Type)
	}
	if kind == token.CONST && i < len(s.Values) {
		text += " = " + p.text(s.Values[i])
	}
	p.line("", "%s %s", kind, text)
}

func (p packageLines) typ(s *ast.TypeSpec) {
	name := s.Name.Name
	head := "type " + name
	if s.TypeParams != nil {
		head += "[" + p.fields(s.TypeParams) + "]"
	}
	if s.Assign.IsValid() {
		p.line(name, "%s = %s", head, p.text(s.Type))
		p.alias(s.Type)
		return
	}
	var list *ast.FieldList
	kind := "struct"
	switch t := s.Type.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list, kind = t.Methods, "interface"
	default:
		p.line(name, "%s %s", head, p.text(t))
		return
	}
	p.line(name, "%s %s", head, kind)
	for _, f := range list.List {
		if len(f.Names) == 0 {
			p.line(name, "%s %s, %s", head, kind, p.text(f.Type))
		}
		for _, n := range f.Names {
			if n.IsExported() {
				p.line(name, "%s %s, %s %s", head, kind, n.Name, p.text(f.Type))
			}
		}
	}
}

// alias notes an alias of a type in an internal package.
func (p packageLines) alias(e ast.Expr) {
	if index, ok := e.(*ast.IndexExpr); ok {
		e = index.X
	}
	if s, ok := e.(*ast.SelectorExpr); ok {
		if name, ok := s.X.(*ast.Ident); ok {
			if dir, ok := strings.CutPrefix(p.imports[name.Name], modulePath+"/"); ok {
				of := dir + "." + s.Sel.Name
				p.aliases[of] = append(p.aliases[of], p.dir)
			}
		}
	}
}

func (p packageLines) fields(list *ast.FieldList) string {
	parts := make([]string, 0, len(list.List))
	for _, f := range list.List {
		names := make([]string, len(f.Names))
		for i, n := range f.Names {
			names[i] = n.Name
		}
		parts = append(parts, strings.Join(names, ", ")+" "+p.text(f.Type))
	}
	return strings.Join(parts, ", ")
}

// text prints a node in one line, without comments.
func (p packageLines) text(n any) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), n); err != nil {
		panic(err) // a node that was parsed can be printed
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
