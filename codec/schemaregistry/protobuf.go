package schemaregistry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile/parser"
	"github.com/bufbuild/protocompile/reporter"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// protobufFormat has the names of the messages of one file. Go types have the descriptors, so that
// the references of the file need not be known.
type protobufFormat struct{ messages []message }

type message struct {
	index []int
	name  string
}

func parseProtobuf(text string) (format, error) {
	const file = "schema.proto"
	handler := reporter.NewHandler(nil)
	ast, err := parser.Parse(file, strings.NewReader(text), handler)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	result, err := parser.ResultFromAST(ast, true, handler)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	f := &protobufFormat{}
	d := result.FileDescriptorProto()
	f.add(nil, d.GetPackage(), d.GetMessageType())
	if len(f.messages) == 0 {
		return nil, errors.New("it has no message")
	}
	return f, nil
}

func (f *protobufFormat) add(at []int, parent string, all []*descriptorpb.DescriptorProto) {
	for i, d := range all {
		name := strings.TrimPrefix(parent+"."+d.GetName(), ".")
		index := append(slices.Clone(at), i)
		f.messages = append(f.messages, message{index, name})
		f.add(index, name, d.GetNestedType())
	}
}

func (f *protobufFormat) name(index []int) string {
	for _, m := range f.messages {
		if slices.Equal(m.index, index) {
			return m.name
		}
	}
	return ""
}

func (f *protobufFormat) decode(payload []byte, index []int, into any) error {
	m, ok := into.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no Protobuf message: register a handler of a pointer to one", into)
	}
	want := string(m.ProtoReflect().Descriptor().FullName())
	if name := f.name(index); name != want {
		return fmt.Errorf("message %v of the schema is %q, not %s", index, name, want)
	}
	if err := proto.Unmarshal(payload, m); err != nil {
		return fmt.Errorf("decode Protobuf: %w", err)
	}
	return nil
}

func (f *protobufFormat) encode(v any) (payload []byte, index []int, err error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, nil, fmt.Errorf("%T is no Protobuf message", v)
	}
	name := string(m.ProtoReflect().Descriptor().FullName())
	at := slices.IndexFunc(f.messages, func(m message) bool { return m.name == name })
	if at < 0 {
		return nil, nil, fmt.Errorf("the schema has no message %s", name)
	}
	if payload, err = proto.Marshal(m); err != nil {
		return nil, nil, fmt.Errorf("encode Protobuf: %w", err)
	}
	return payload, f.messages[at].index, nil
}
