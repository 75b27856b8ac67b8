package snippets

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// modules are the folders with packages and dependencies that a snippet may use. Of two versions of
// a package, a snippet has that of the first folder.
var modules = []string{
	".", "examples", "adapter/kgoidem", "adapter/kafkagoidem", "adapter/watermillidem",
	"outbox/sqloutbox", "test/orms", "test/frameworks",
}

// imports has the packages from elsewhere that a snippet may use, by the name in it. The packages
// of this repository need no line, unless two have one name: then the key begins with the page.
var imports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "os": "os",
	"slices": "slices", "slog": "log/slog", "sql": "database/sql", "strings": "strings", "synctest": "testing/synctest",
	"testing": "testing", "time": "time",

	"pgx":     "github.com/jackc/pgx/v5",
	"pgxpool": "github.com/jackc/pgx/v5/pgxpool",
	"redis":   "github.com/redis/go-redis/v9",
	"sasl":    "github.com/twmb/franz-go/pkg/sasl",
	"message": "github.com/ThreeDotsLabs/watermill/message",

	"dialect":  "entgo.io/ent/dialect",
	"entsql":   "entgo.io/ent/dialect/sql",
	"gorm":     "gorm.io/gorm",
	"reflectx": "github.com/jmoiron/sqlx/reflectx",
	"sqlx":     "github.com/jmoiron/sqlx",

	"echo":        "github.com/labstack/echo/v5",
	"otel":        "go.opentelemetry.io/otel",
	"prometheus":  "go.opentelemetry.io/otel/exporters/prometheus",
	"propagation": "go.opentelemetry.io/otel/propagation",
	"sdkmetric":   "go.opentelemetry.io/otel/sdk/metric",
	"sdktrace":    "go.opentelemetry.io/otel/sdk/trace",

	"docs/outbox.md:mysql": module + "/outbox/sqloutbox/mysql",
}

// variables has the types of variables that a snippet may use without a declaration. If the
// variable has another type in one page, the key begins with the page.
var variables = map[string]string{
	"account":       "func(*http.Request) (string, error)",
	"box":           "*pgoutbox.Outbox",
	"brokers":       "[]string",
	"ctx":           "context.Context",
	"db":            "*sql.DB",
	"guard":         "*dedup.Guard",
	"liveConfig":    "consumer.Config",
	"m":             "*httpidem.Middleware",
	"messageRouter": "*message.Router",
	"mux":           "*http.ServeMux",
	"pool":          "*pgxpool.Pool",
	"processor":     "*idem.Processor",
	"producer":      "*consumer.Producer",
	"r":             "*idem.Router",
	"rdb":           "*redis.Client",
	"registry":      "*schemaregistry.Registry",
	"relay":         "*outbox.Relay",
	"router":        "*idem.Router",
	"secret":        "[]byte",
	"store":         "*pgstore.Store",
	"subscriber":    "message.Subscriber",
	"telemetry":     "*otelidem.Observer",
	"tx":            "pgx.Tx",
	"worker":        "*consumer.Consumer",

	"docs/embedding.md:router": "*message.Router",
	"docs/functions.md:client": "*redis.Client",
	"docs/functions.md:key":    "dedup.Key",
	"docs/http.md:cfg":         "httpidem.Config",
	"docs/ops.md:" + literal:   "ops.Config",
	"docs/orm.md:db":           "*gorm.DB",
	"docs/overview.md:key":     "dedup.Key",
	"docs/overview.md:msgs":    "[]*idem.Message",
	"docs/overview.md:p":       "*idem.Processor",
	"docs/security.md:secret":  "string",
	"docs/security.md:source":  "kafkaauth.TokenSource",
	"docs/telemetry.md:cfg":    "consumer.Config",
	"docs/telemetry.md:spans":  "sdktrace.SpanExporter",
}

// known returns the entry of a table for a name in a page.
func known(table map[string]string, page, name string) string {
	if special, ok := table[page+":"+name]; ok {
		return special
	}
	return table[name]
}

// packages are those that snippets may use. Their declarations come from their source, so the check
// needs no compiled package.
type packages struct {
	mu      sync.Mutex
	root    string
	fset    *token.FileSet
	listed  map[string]listed
	names   map[string]string // paths of this repository's packages, by name; "" for two of a name
	checked map[string]*types.Package
}

// listed is a package in the output of go list.
type listed struct {
	ImportPath, Name, Dir string
	GoFiles               []string
	ImportMap             map[string]string
}

// list finds the packages of the modules and their dependencies, once.
func (ps *packages) list(ctx context.Context) error {
	if ps.listed != nil {
		return nil
	}
	all, names := make(map[string]listed), make(map[string]string)
	for _, folder := range modules {
		found, err := goList(ctx, filepath.Join(ps.root, folder))
		if err != nil {
			return err
		}
		for _, p := range found {
			// A space is in the path of a package that is built anew for a test.
			if _, again := all[p.ImportPath]; again || strings.Contains(p.ImportPath, " ") || p.Name == "main" {
				continue
			}
			all[p.ImportPath] = p
			path, ours := strings.CutPrefix(p.ImportPath+"/", module+"/")
			if !ours || strings.Contains("/"+path, "/internal/") || foreign.MatchString(path) {
				continue
			}
			_, two := names[p.Name]
			names[p.Name] = p.ImportPath
			if two {
				names[p.Name] = ""
			}
		}
	}
	ps.listed, ps.names, ps.fset, ps.checked = all, names, token.NewFileSet(), make(map[string]*types.Package)
	return nil
}

// goList returns the packages of a module and their dependencies, also those of its tests.
func goList(ctx context.Context, folder string) (all []listed, err error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-json=ImportPath,Name,Dir,GoFiles,ImportMap", "./...")
	list.Dir = folder
	list.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0") // go/types reads no C
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w\n%s", folder, err, stderr.Bytes())
	}
	d := json.NewDecoder(bytes.NewReader(out))
	for d.More() {
		var p listed
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("go list in %s: %w", folder, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// qualifier matches the name of a package in a type.
var qualifier = regexp.MustCompile(`(\w+)\.`)

// foreign matches the folders without a package that a page shows.
var foreign = regexp.MustCompile(`^(?:cmd|examples|test|tools)/`)

// load returns the declarations of a package.
func (ps *packages) load(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := ps.checked[path]; p != nil {
		return p, nil
	}
	l, ok := ps.listed[path]
	if !ok {
		return nil, fmt.Errorf("no module of internal/snippets/packages.go has the package %s", path)
	}
	var files []*ast.File
	for _, name := range l.GoFiles {
		file, err := parser.ParseFile(ps.fset, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	config := types.Config{
		IgnoreFuncBodies: true, FakeImportC: true, Sizes: types.SizesFor("gc", runtime.GOARCH),
		Importer: importer(func(path string) (*types.Package, error) {
			if vendored, ok := l.ImportMap[path]; ok {
				path = vendored
			}
			return ps.load(path)
		}),
	}
	p, err := config.Check(path, ps.fset, files, nil)
	if err != nil {
		return nil, fmt.Errorf("package %s: %w", path, err)
	}
	ps.checked[path] = p
	return p, nil
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }

// surroundings returns the imports and the file of variables for names that a snippet does not
// declare. A name with true is in front of a dot.
func (ps *packages) surroundings(page string, names map[string]bool) (header, file string) {
	paths := make(map[string]string)
	add := func(name string) bool {
		path := known(imports, page, name)
		if path == "" {
			path = ps.names[name]
		}
		if path != "" {
			paths[name] = path
		}
		return path != ""
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] && add(name) {
			continue
		}
		if of := known(variables, page, name); of != "" {
			if name == literal {
				file += "\ntype " + name + " = " + of
			} else {
				file += "\nvar " + name + " " + of
			}
			for _, pkg := range qualifier.FindAllStringSubmatch(of, -1) {
				add(pkg[1])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		header += fmt.Sprintf("import %s %q;", name, paths[name])
	}
	return header, file
}
