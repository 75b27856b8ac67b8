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

// message is a message of the file. Writers count nested messages in two ways. The libraries of
// Google count the entry messages that they generate for map fields, those of Java for Confluent's
// registry do not.
type message struct {
	index   []int // with the generated messages
	written []int // without them; nil for a generated message
	name    string
}

func parseProtobuf(text string) (format, error) {
	const file = "schema.proto"
	handler := reporter.NewHandler(nil)
	ast, err := parser.Parse(file, strings.NewReader(text), handler)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	// The file is not validated, since the registry did that. The validation also refuses the option
	// map_entry, which serializers of Confluent wrote into registered files.
	result, err := parser.ResultFromAST(ast, false, handler)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	f := &protobufFormat{}
	d := result.FileDescriptorProto()
	f.add(message{index: []int{}, written: []int{}, name: d.GetPackage()}, d.GetMessageType())
	if len(f.messages) == 0 {
		return nil, errors.New("it has no message")
	}
	return f, nil
}

func (f *protobufFormat) add(parent message, all []*descriptorpb.DescriptorProto) {
	written := 0
	for i, d := range all {
		m := message{
			index: append(slices.Clone(parent.index), i),
			name:  strings.TrimPrefix(parent.name+"."+d.GetName(), "."),
		}
		// The parser sets the option for generated messages only.
		if !d.GetOptions().GetMapEntry() {
			m.written = append(slices.Clone(parent.written), written)
			written++
		}
		f.messages = append(f.messages, m)
		f.add(m, d.GetNestedType())
	}
}

// names returns the names of the messages that an index may stand for: first the one that counts
// generated messages. A value is never a generated message.
func (f *protobufFormat) names(index []int) (names []string) {
	for _, m := range f.messages {
		switch {
		case m.written == nil:
		case slices.Equal(m.index, index):
			names = slices.Insert(names, 0, m.name)
		case slices.Equal(m.written, index):
			names = append(names, m.name)
		}
	}
	return names
}

func (f *protobufFormat) name(index []int) string {
	if names := f.names(index); len(names) > 0 {
		return names[0]
	}
	return ""
}

func (f *protobufFormat) decode(payload []byte, index []int, into any) error {
	m, ok := into.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no Protobuf message: register a handler of a pointer to one", into)
	}
	want := string(m.ProtoReflect().Descriptor().FullName())
	if !slices.Contains(f.names(index), want) {
		return fmt.Errorf("message %v of the schema is %q, not %s", index, f.name(index), want)
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
