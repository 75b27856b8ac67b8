package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/events"
	"github.com/idem-go/idem/ops"
)

// jsonPackages have the JSON that the command prints.
var jsonPackages = []string{
	".", "../../internal/deadletters", "../../internal/events", "../../internal/outboxview",
	"../../internal/doctor",
}

// The names of things that several verbs, audit lines or log lines have. The others are synonyms
// that were in use: no output has them. A list has the plural.
var jsonConcepts = []struct{ concept, name, others string }{
	{"ID of an event", "event_id", "id event event_key"},
	{"IDs of events", "event_ids", "events_ids"},
	{"place of a record, beside its topic", "record", "dead_letter place at"},
	{"key of a record", "kafka_key", ""},
	{"bytes of a value", "size", "bytes"},
	{"numbers of rows of an outbox", "seqs", ""},
	{"user of an action", "user", "who"},
	{"time to which a group goes back", "to_time", ""},
	{"what a verb has done to an object", "result", ""},
	{"end of an action", "outcome", "status"},
	{"a run that changes nothing", "dry_run", "would"},
}

// A check of the doctor has an ID of its own. A plan of Postgres is read, not printed.
var jsonExceptions = map[string]string{"id": "../../internal/doctor", "Plan Rows": "."}

// All fields of JSON are in snake case, and one thing has one name in all of them.
func TestNamesInJSON(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	all := map[string]bool{}
	for _, dir := range jsonPackages {
		names := namesInJSON(t, filepath.Join(dir, "*.go"))
		require.NotEmpty(t, names, dir)
		for name, where := range names {
			all[name] = true
			if jsonExceptions[name] == dir {
				continue
			}
			require.Regexp(t, snake, name, where)
			for _, c := range jsonConcepts {
				require.NotContains(t, strings.Fields(c.others), name, "%s: %s: %q", where, c.concept, c.name)
			}
		}
	}
	for name := range namesInJSON(t, "../../ops/audit.go") {
		all[name] = true
		require.NotContains(t, []string{"id", "event", "dead_letter", "who"}, name, "log lines of the ops page")
	}
	for _, c := range jsonConcepts {
		require.True(t, all[c.name], "no output has %q any more", c.name)
	}
}

// namesInJSON returns the fields of JSON that files write: tags of structs, keys of maps of any
// values, and the names of log attributes. The values are places.
func namesInJSON(t *testing.T, pattern string) map[string]string {
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	names := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		add := func(at ast.Node, quoted string) {
			name, err := strconv.Unquote(quoted)
			if err == nil && name != "" && name != "-" && !strings.Contains(name, ".") { // a check
				names[name] = set.Position(at.Pos()).String()
			}
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				if n.Tag != nil {
					tag, _ := strconv.Unquote(n.Tag.Value)
					name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
					add(n, strconv.Quote(name))
				}
			case *ast.CompositeLit:
				for _, key := range keysOfFields(n) {
					add(key, key.Value)
				}
			case *ast.IndexExpr:
				if key, ok := n.Index.(*ast.BasicLit); ok && key.Kind == token.STRING {
					add(key, key.Value)
				}
			case *ast.CallExpr:
				if isSlogString(n.Fun) {
					if key, ok := n.Args[0].(*ast.BasicLit); ok {
						add(key, key.Value)
					}
				}
			}
			return true
		})
	}
	return names
}

func isSlogString(fun ast.Expr) bool {
	s, ok := fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "String" {
		return false
	}
	in, ok := s.X.(*ast.Ident)
	return ok && in.Name == "slog"
}

// keysOfFields returns the keys of a map of any values or texts, and the first texts of rows such
// as {"plan", e.Plan}.
func keysOfFields(n *ast.CompositeLit) (keys []*ast.BasicLit) {
	m, isMap := n.Type.(*ast.MapType)
	if isMap {
		value, ok := m.Value.(*ast.Ident)
		isMap = ok && (value.Name == "any" || value.Name == "string")
	}
	for i, e := range n.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok && isMap {
			e = pair.Key
		} else if n.Type != nil || i > 0 || len(n.Elts) != 2 {
			continue
		} else if _, ok := n.Elts[1].(*ast.SelectorExpr); !ok {
			continue
		}
		key, ok := e.(*ast.BasicLit)
		if ok && key.Kind == token.STRING && (isMap || key.Value == strings.ToLower(key.Value)) {
			keys = append(keys, key)
		}
	}
	return keys
}

// An event has the same fields in the results of all verbs and in all audit lines.
func TestFieldsOfAnEvent(t *testing.T) {
	tags := func(v any) (names []string) {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
		return names
	}
	var file strings.Builder
	a := &app{stderr: &file}
	audited := &app{stderr: &file, auditFile: tempFile(t)}
	audited.opsAudit()(t.Context(), ops.AuditEvent{
		Who: "ada", DeadLetter: "orders.g.dlq/0/14", EventType: "paid", EventID: "1",
	})
	(&deadLetters{app: a, Queue: &deadletters.Queue{}}).auditEdit(
		deadletters.Done{Edit: &deadletters.Edit{}}, &progress{})
	edit := auditLines(t, file.String())[0]
	page := auditLines(t, read(t, audited.auditFile.Name()))[0]
	require.Equal(t, "0/14", page["record"])
	require.Equal(t, "orders.g.dlq", page["topic"])

	deadLetter := []string{"event_id", "type", "topic", "record"}
	for where, c := range map[string]struct{ has, want []string }{
		"event get":        {tags(events.View{}), []string{"event_id", "type", "tenant", "scope", "store"}},
		"event list":       {tags(listed{}), []string{"event_id", "type", "tenant", "scope", "store"}},
		"event release":    {tags(verbResult{}), []string{"event_id", "type", "store", "result"}},
		"audit of skip":    {slices.Collect(maps.Keys(auditOf(nil, dedup.Key{}, "r"))), []string{"event_id", "type", "tenant", "scope", "reason"}},
		"dlq ls":           {tags(deadletters.Row{}), append(deadLetter, "tenant", "scope")},
		"dlq export":       {tags(deadletters.Exported{}), append(deadLetter, "kafka_key")},
		"dlq show":         {tags(deadletters.Detail{}), append(deadLetter, "kafka_key", "size", "payload")},
		"audit of edit":    {slices.Collect(maps.Keys(edit)), append(deadLetter, "tenant", "scope", "user")},
		"audit of ops":     {slices.Collect(maps.Keys(page)), append(deadLetter, "user")},
		"dlq replay":       {tags(deadletters.Attention{}), []string{"record"}},
		"outbox parked":    {tags(parkedRowView{}), []string{"event_id", "type", "topic", "kafka_key", "size", "payload"}},
		"migrate of a box": {tags(tablesView{}), []string{"store", "outbox"}},
	} {
		for _, name := range c.want {
			require.Contains(t, c.has, name, where)
		}
	}
}
