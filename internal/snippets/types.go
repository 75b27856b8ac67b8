package snippets

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// check returns the errors of types in a snippet that is no program. The snippet may use names from
// the code around it. Names in the tables have a type; names that are not in them fit everywhere.
func (ps *packages) check(ctx context.Context, s Snippet) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if err := ps.list(ctx); err != nil {
		return err
	}
	f, err := parse(s.Text)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.Text)
	}
	f.check(nil)
	header, file := ps.surroundings(s.Page, f.unresolved())
	data := f.data()
	for _, name := range data {
		file += "\ntype " + name + " struct{}"
	}
	if f, err = f.with(header, file); err != nil {
		return err
	}
	f.opaque = data
	return f.errors(s, f.check(importer(ps.load)))
}

// A fragment is a snippet in the form of files. Their lines have the numbers of the snippet's
// lines.
type fragment struct {
	texts []string // after the package clause and the imports
	fset  *token.FileSet
	files []*ast.File
	pkg   *types.Package
	info  types.Info

	opaque []string // types with any field and method
}

// An ellipsis in a page stands for code of the reader.
var (
	ellipses    = regexp.MustCompile(`(?m)^[ \t]*\.\.\.(?:[ \t]*//.*)?$|\{ ?\.\.\. ?\}`)
	declaration = regexp.MustCompile(`(?m)^(?:func|type|var|const) (?:.*[({,](?:\n.*)*?\n[})]|.*)$`)
	visible     = regexp.MustCompile(`[^\n]`)
)

// literal is the name for the type of a literal of which a page shows only fields.
const literal = "fields"

// parse returns an error unless a piece of code has declarations and statements, or fields of a
// literal.
func parse(text string) (*fragment, error) {
	text = ellipses.ReplaceAllStringFunc(text, func(e string) string {
		if strings.HasPrefix(e, "{") {
			return "{panic(0)}"
		}
		return "panic(0)"
	})
	blank := func(s string) string { return visible.ReplaceAllString(s, " ") }
	declarations, end := "", 0
	for _, at := range declaration.FindAllStringIndex(text, -1) {
		declarations += blank(text[end:at[0]]) + text[at[0]:at[1]]
		end = at[1]
	}
	statements := declaration.ReplaceAllStringFunc(text, blank) + "\n;panic(0)\n}"
	f, err := (&fragment{texts: []string{declarations, "func _() {" + statements}}).with("", "")
	if err != nil {
		if fields, e := (&fragment{texts: []string{"var _ = " + literal + "{" + text + "\n}"}}).with("", ""); e == nil {
			return fields, nil
		}
		return nil, err
	}
	f.texts[1] = "func _() " + f.results() + " {" + statements
	return f, nil
}

// with returns the fragment with imports, and with a file of variables.
func (f *fragment) with(imports, variables string) (*fragment, error) {
	with := &fragment{texts: f.texts, fset: token.NewFileSet()}
	for _, text := range append(slices.Clone(f.texts), variables) {
		file, err := parser.ParseFile(with.fset, "", "package p;"+imports+text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, use)
		with.files = append(with.files, file)
	}
	return with, nil
}

// use assigns each literal that stands alone to _, since a page may show a literal as it is.
func use(n ast.Node) bool {
	if block, ok := n.(*ast.BlockStmt); ok {
		for i, s := range block.List {
			e, ok := s.(*ast.ExprStmt)
			if !ok {
				continue
			}
			if l, ok := e.X.(*ast.CompositeLit); ok {
				block.List[i] = &ast.AssignStmt{
					Lhs: []ast.Expr{&ast.Ident{NamePos: l.Pos(), Name: "_"}}, TokPos: l.Pos(), Tok: token.ASSIGN, Rhs: []ast.Expr{l},
				}
			}
		}
	}
	return true
}

// results returns the results of the function that the statements are from: the last is an error.
func (f *fragment) results() string {
	count := 0
	for _, d := range f.files[1].Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			if r, ok := n.(*ast.ReturnStmt); ok {
				count = max(count, len(r.Results))
			}
			_, inner := n.(*ast.FuncLit)
			return !inner
		})
	}
	if count == 0 {
		return ""
	}
	return "(" + strings.Repeat("_ any, ", count-1) + "_ error)"
}

// check finds the types. It returns the errors, apart from soft ones, such as a variable without a
// use.
func (f *fragment) check(from types.Importer) (found []types.Error) {
	f.info = types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object),
	}
	config := types.Config{
		Importer: from, FakeImportC: true, Sizes: types.SizesFor("gc", runtime.GOARCH),
		Error: func(err error) {
			if e := (types.Error{}); errors.As(err, &e) && !e.Soft {
				found = append(found, e)
			}
		},
	}
	f.pkg, _ = config.Check("p", f.fset, f.files, &f.info) // the error is the first of those found
	return found
}

// names calls do with each identifier that must be in scope, and reports whether it is in front of
// a dot. The fields of a literal and the names behind a dot are no such identifiers.
func (f *fragment) names(do func(id *ast.Ident, dot bool)) {
	other := make(map[*ast.Ident]bool)
	before := make(map[*ast.Ident]bool)
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				other[n.Sel] = true
				if id, ok := n.X.(*ast.Ident); ok {
					before[id] = true
				}
			case *ast.CompositeLit:
				for _, field := range f.fields(n) {
					other[field] = true
				}
			case *ast.Ident:
				if !other[n] {
					do(n, before[n])
				}
			}
			return true
		})
	}
}

// fields returns the names of fields in a literal of a struct.
func (f *fragment) fields(l *ast.CompositeLit) (names []*ast.Ident) {
	of := f.info.Types[l].Type
	if of == nil {
		return nil
	}
	if p, ok := of.Underlying().(*types.Pointer); ok { // &T in a list of pointers, without the type
		of = p.Elem()
	}
	if _, ok := of.Underlying().(*types.Struct); !ok {
		return nil
	}
	for _, e := range l.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := pair.Key.(*ast.Ident); ok {
				names = append(names, id)
			}
		}
	}
	return names
}

// declared reports whether an identifier is in scope, or is a declaration.
func (f *fragment) declared(id *ast.Ident) bool {
	if _, declares := f.info.Defs[id]; declares || id.Name == "_" {
		return true
	}
	_, found := f.pkg.Scope().Innermost(id.Pos()).LookupParent(id.Name, id.Pos())
	return found != nil
}

// unresolved returns the names that the snippet uses and does not declare. Those with true are in
// front of a dot.
func (f *fragment) unresolved() map[string]bool {
	names := make(map[string]bool)
	f.names(func(id *ast.Ident, dot bool) {
		if !f.declared(id) {
			names[id.Name] = names[id.Name] || dot
		}
	})
	return names
}

// data returns the types of events, such as T in idem.Event[T], that the snippet does not declare.
// With a declaration of T, the names behind the event are checked too.
func (f *fragment) data() (names []string) {
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if event, ok := n.(*ast.IndexExpr); ok && types.ExprString(event.X) == "idem.Event" {
				of := event.Index
				if p, ok := of.(*ast.StarExpr); ok {
					of = p.X
				}
				if id, ok := of.(*ast.Ident); ok && !f.declared(id) && !slices.Contains(names, id.Name) {
					names = append(names, id.Name)
				}
			}
			return true
		})
	}
	return names
}

// fieldsOfData calls do with each name of a field or a method of the types of events.
func (f *fragment) fieldsOfData(do func(*ast.Ident)) {
	is := func(e ast.Expr) bool {
		t := f.info.Types[e].Type
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		named, ok := t.(*types.Named)
		return ok && named.Obj().Pkg() == f.pkg && slices.Contains(f.opaque, named.Obj().Name())
	}
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if is(n.X) {
					do(n.Sel)
				}
			case *ast.CompositeLit:
				if is(n) {
					for _, field := range f.fields(n) {
						do(field)
					}
				}
			}
			return true
		})
	}
}

// errors returns those of the errors that are not about names of the code around the snippet.
func (f *fragment) errors(s Snippet, found []types.Error) (all error) {
	around := make(map[token.Pos]bool)
	f.names(func(id *ast.Ident, _ bool) {
		if !f.declared(id) {
			around[id.Pos()] = true
		}
	})
	f.fieldsOfData(func(id *ast.Ident) { around[id.Pos()] = true })
	found = slices.DeleteFunc(found, func(e types.Error) bool { return around[e.Pos] })
	for _, e := range append(found, f.calls(found)...) {
		all = errors.Join(all, fmt.Errorf("%s:%d: %s", s.Page, s.Line+f.fset.Position(e.Pos).Line, e.Msg))
	}
	return all
}

// calls returns an error for each call with too many or wrong arguments, unless the call has an
// error already. If a name without a type is behind one argument, go/types does not check the
// others.
func (f *fragment) calls(reported []types.Error) (found []types.Error) {
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || call.Ellipsis.IsValid() {
				return true
			}
			function := f.info.Types[call.Fun]
			s, ok := function.Type.(*types.Signature)
			if !ok || !function.IsValue() || slices.ContainsFunc(reported, func(e types.Error) bool {
				return call.Pos() <= e.Pos && e.Pos < call.End()
			}) {
				return true
			}
			if msg := f.wrong(call, s); msg != "" {
				found = append(found, types.Error{Pos: call.Pos(), Msg: types.ExprString(call.Fun) + ": " + msg})
			}
			return true
		})
	}
	return found
}

// wrong returns the mistake in the arguments of a call, or "".
func (f *fragment) wrong(call *ast.CallExpr, s *types.Signature) string {
	given, last := len(call.Args), s.Params().Len()-1
	if given == 1 {
		if _, several := call.Args[0].(*ast.CallExpr); several {
			return "" // f(g()): g may have many results
		}
	}
	if given > last+1 && !s.Variadic() {
		return "too many arguments in the call"
	}
	for i, arg := range call.Args {
		want := s.Params().At(min(i, last)).Type()
		if i >= last && s.Variadic() {
			want = want.(*types.Slice).Elem()
		}
		if have := f.info.Types[arg].Type; have != nil && concrete(have) && concrete(want) && !types.AssignableTo(have, want) {
			return fmt.Sprintf("cannot use %s as %s", types.ExprString(arg), want)
		}
	}
	return ""
}

// concrete reports whether a type has a simple form, without parameters and unknown types.
func concrete(t types.Type) bool {
	switch t := types.Unalias(t).(type) {
	case *types.Basic:
		return t.Kind() != types.Invalid
	case *types.Named:
		return t.TypeArgs().Len() == 0
	case *types.Pointer:
		return concrete(t.Elem())
	case *types.Slice:
		return concrete(t.Elem())
	}
	return false
}
