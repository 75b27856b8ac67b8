package idemtest

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// argument is an argument of a call of [Torture]: its name there, and a function.
type argument struct {
	name  string
	value any
}

// repetition makes the code that repeats a call of [Torture].
type repetition struct {
	call      string
	arguments []string
	options   []string
	unnamed   []string // comments about functions that code cannot name
}

func (r *repetition) begin(call string, arguments []argument) {
	r.call = call
	for _, a := range arguments {
		r.arguments = append(r.arguments, r.function(a.name, a.value))
	}
}

// finish adds the options that have values.
func (r *repetition) finish(s *search) {
	if len(s.records) > 0 {
		var b strings.Builder
		b.WriteString("idemtest.Records(\n")
		for _, one := range s.records {
			b.WriteString("\t\t\t" + recordCode(one) + ",\n")
		}
		r.options = append(r.options, b.String()+"\t\t)")
	}
	guard := s.guard
	if guard.Observe != nil {
		r.unnamed = append(r.unnamed, "Guard: add the Observe of the test")
		guard.Observe = nil
	}
	if guard.Keyring != nil {
		r.unnamed = append(r.unnamed, "Guard: add the Keyring of the test")
		guard.Keyring = nil
	}
	if !reflect.DeepEqual(guard, dedup.GuardConfig{}) {
		r.options = append(r.options, "idemtest.Guard("+guardCode(guard)+")")
	}
	if len(s.accept) > 0 {
		r.options = append(r.options, fmt.Sprintf("idemtest.AcceptRepeats(%s)", quoted(s.accept)))
	}
	if s.acceptUnknown {
		r.options = append(r.options, "idemtest.AcceptUnknown()")
	}
	if s.acceptDead {
		r.options = append(r.options, "idemtest.AcceptDeadLetters()")
	}
}

// function returns the name of a function in the package of the test. A function without a name
// gets the one that it has as an argument, and a comment names the place of its code.
func (r *repetition) function(argument string, fn any) string {
	f := runtime.FuncForPC(reflect.ValueOf(fn).Pointer())
	name, named := localName(f.Name())
	if named {
		return name
	}
	file, line := f.FileLine(f.Entry())
	r.unnamed = append(r.unnamed,
		fmt.Sprintf("%s is the function at %s:%d", argument, filepath.Base(file), line))
	return argument
}

// localName returns the name of a function without its package. Closures, bound methods and
// instances of generic functions have no such name.
func localName(full string) (name string, named bool) {
	base := full[strings.LastIndexByte(full, '/')+1:]
	_, name, _ = strings.Cut(base, ".")
	rest := name
	if strings.HasPrefix(name, "(*") { // a method expression
		_, rest, _ = strings.Cut(name, ").")
	} else if typ, method, ok := strings.Cut(name, "."); ok && !strings.HasPrefix(method, "func") {
		rest = typ + method
	}
	return name, rest != "" && !strings.ContainsAny(rest, ".[]-")
}

// code returns a test function that runs only one schedule.
func (r *repetition) code(s schedule) string {
	var b strings.Builder
	b.WriteString("func TestTortureAgain(t *testing.T) {\n")
	for _, comment := range r.unnamed {
		fmt.Fprintf(&b, "\t// %s\n", comment)
	}
	fmt.Fprintf(&b, "\tidemtest.%s(t, %s,\n", r.call, strings.Join(r.arguments, ", "))
	for _, o := range r.options {
		fmt.Fprintf(&b, "\t\t%s,\n", o)
	}
	fmt.Fprintf(&b, "\t\tidemtest.Only(%q),\n\t)\n}\n", s)
	return b.String()
}

// recordCode returns a record as Go code. The value is that of the Kafka record.
func recordCode(r Record) string {
	var fields []string
	add := func(format string, args ...any) { fields = append(fields, fmt.Sprintf(format, args...)) }
	for _, f := range []struct{ name, value string }{
		{"ID", r.ID}, {"Type", r.Type}, {"Key", r.Key}, {"Topic", r.Topic},
	} {
		if f.value != "" {
			add("%s: %q", f.name, f.value)
		}
	}
	if value, err := r.encoded(); err == nil && value != nil { // without a value: a tombstone
		add("Value: []byte(%q)", value)
	}
	if len(r.Headers) > 0 {
		list := make([]string, len(r.Headers))
		for i, h := range r.Headers {
			list[i] = fmt.Sprintf("{Key: %q, Value: []byte(%q)}", h.Key, h.Value)
		}
		add("Headers: []idem.Header{%s}", strings.Join(list, ", "))
	}
	if !r.Time.IsZero() {
		add("Time: time.Unix(0, %d)", r.Time.UnixNano())
	}
	return "idemtest.Record{" + strings.Join(fields, ", ") + "}"
}

// guardCode returns a configuration without functions and keys as Go code.
func guardCode(cfg dedup.GuardConfig) string {
	var fields []string
	v := reflect.ValueOf(cfg)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() && f.Kind() != reflect.Func {
			// A duration is a number of nanoseconds.
			fields = append(fields, fmt.Sprintf("%s: %#v", v.Type().Field(i).Name, f.Interface()))
		}
	}
	return "dedup.GuardConfig{" + strings.Join(fields, ", ") + "}"
}

func quoted(list []string) string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = fmt.Sprintf("%q", one)
	}
	return strings.Join(texts, ", ")
}
