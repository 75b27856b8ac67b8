package schemaregistry

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/idem-go/idem"
)

// Field returns an extractor of a field of the decoded value, for [idem.ID], [idem.Tenant] and
// [idem.FingerprintOf]. Dots separate the names of nested fields: Field[Order](registry,
// "order.id"). T is the type of the handler's data, so that a delivery is decoded once.
//
// A name is that of the field in the .proto file, or the tag avro or json of a struct. For a field
// without a tag it is the name in Go, and for a map it is the key. The field is a string as it is,
// or an integer as its text. A field that is absent, nil or the empty string is not found. Zero is
// an integer like others. A text with the character U+FFFD is [idem.ErrInvalid]: encoding/json
// writes it in place of invalid Unicode, so different IDs would become equal.
//
// Field returns the zero [idem.Extractor], which NewProcessor refuses, if T has no such field or if
// the field can be neither a string nor an integer.
func Field[T any](r *Registry, path string) idem.Extractor {
	names := strings.Split(path, ".")
	if !exists(reflect.TypeFor[T](), names) {
		return idem.Extractor{}
	}
	return idem.FromData("field "+path, r, func(data T) (string, error) {
		text, ok := textAt(reflect.ValueOf(&data).Elem(), names)
		if !ok || text == "" {
			return "", fmt.Errorf("field %s %w", path, idem.ErrNotFound)
		}
		if strings.Contains(text, replacement) {
			return "", fmt.Errorf("%w: field %s is not valid Unicode", idem.ErrInvalid, path)
		}
		return text, nil
	})
}

// replacement is the character that encoding/json writes in place of invalid UTF-8 and of half
// surrogates.
const replacement = string(utf8.RuneError)

var protoMessage = reflect.TypeFor[proto.Message]()

// exists reports whether a type may have a field. Types that are known at run time only may.
func exists(t reflect.Type, names []string) bool {
	if t.Implements(protoMessage) && t.Kind() == reflect.Pointer {
		m, ok := reflect.Zero(t).Interface().(proto.Message)
		return ok && existsProto(m.ProtoReflect().Descriptor(), names)
	}
	switch k := t.Kind(); {
	case k == reflect.Interface:
		return true
	case k == reflect.Pointer:
		return exists(t.Elem(), names)
	case len(names) == 0:
		return k == reflect.String || isInteger(k)
	case k == reflect.Map:
		return t.Key().Kind() == reflect.String && exists(t.Elem(), names[1:])
	case k == reflect.Struct:
		f, ok := fieldOf(t, names[0])
		return ok && exists(f.Type, names[1:])
	}
	return false
}

func existsProto(d protoreflect.MessageDescriptor, names []string) bool {
	if len(names) == 0 {
		return false
	}
	f := d.Fields().ByName(protoreflect.Name(names[0]))
	switch {
	case f == nil || f.IsList() || f.IsMap():
		return false
	case f.Message() != nil:
		return existsProto(f.Message(), names[1:])
	}
	switch f.Kind() {
	case protoreflect.BoolKind, protoreflect.FloatKind, protoreflect.DoubleKind,
		protoreflect.BytesKind, protoreflect.EnumKind:
		return false
	default:
		return len(names) == 1
	}
}

func isInteger(k reflect.Kind) bool {
	return k >= reflect.Int && k <= reflect.Uint64
}

// fieldOf returns the exported field of a struct with that tag, or with that name and no tag.
func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && isCalled(f.Tag, f.Name, name) {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func isCalled(tags reflect.StructTag, field, name string) bool {
	tagged := false
	for _, key := range []string{"avro", "json"} {
		tag, _, _ := strings.Cut(tags.Get(key), ",")
		if tag == name && name != "" && name != "-" {
			return true
		}
		tagged = tagged || tag != ""
	}
	return !tagged && field == name
}

// textAt returns the text of a field.
func textAt(v reflect.Value, names []string) (string, bool) {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "", false
		}
		if m, ok := v.Interface().(proto.Message); ok {
			return protoText(m.ProtoReflect(), names)
		}
		v = v.Elem()
	}
	switch k := v.Kind(); {
	case len(names) == 0:
		return scalar(v)
	case k == reflect.Map && v.Type().Key().Kind() == reflect.String:
		element := v.MapIndex(reflect.ValueOf(names[0]).Convert(v.Type().Key()))
		if !element.IsValid() {
			return "", false
		}
		return textAt(element, names[1:])
	case k == reflect.Struct:
		if f, ok := fieldOf(v.Type(), names[0]); ok {
			return textAt(v.FieldByIndex(f.Index), names[1:])
		}
	}
	return "", false
}

func scalar(v reflect.Value) (string, bool) {
	switch {
	case v.Kind() == reflect.String:
		return v.String(), true
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10), true
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10), true
	}
	return "", false
}

func protoText(m protoreflect.Message, names []string) (string, bool) {
	if len(names) == 0 {
		return "", false
	}
	f := m.Descriptor().Fields().ByName(protoreflect.Name(names[0]))
	if f == nil || f.IsList() || f.IsMap() || f.HasPresence() && !m.Has(f) {
		return "", false
	}
	v := m.Get(f)
	if f.Message() != nil {
		return protoText(v.Message(), names[1:])
	}
	switch n := v.Interface().(type) {
	case string:
		return n, len(names) == 1
	case int32, int64, uint32, uint64:
		return fmt.Sprint(n), len(names) == 1
	}
	return "", false
}
