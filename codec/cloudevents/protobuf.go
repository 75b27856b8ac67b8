package cloudevents

import (
	"encoding/base64"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// This file reads io.cloudevents.v1.CloudEvent without generated code. A program that links the
// generated code of another module has the message already, and Go refuses to register it twice.

var errProtobuf = errors.New("the CloudEvent is not valid in the Protobuf format")

// fields calls visit for each field of a message. raw is the content of a length-delimited field;
// number is the value of a varint.
func fields(b []byte, visit func(n int, raw []byte, number uint64) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errProtobuf
		}
		b = b[size:]
		var raw []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			raw, size = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(b)
		default:
			n, size = 0, protowire.ConsumeFieldValue(n, kind, b) // an unknown field
		}
		if size < 0 {
			return errProtobuf
		}
		b = b[size:]
		if err := visit(int(n), raw, number); err != nil {
			return err
		}
	}
	return nil
}

// required are the attributes with a field of their own, by field number.
var required = map[int]string{1: "id", 2: "source", 3: "specversion", 4: "type"}

func parseProtobuf(value []byte) (*Event, error) {
	e := &Event{Attributes: make(map[string]string)}
	var data []byte
	hasData := false
	err := fields(value, func(n int, raw []byte, _ uint64) error {
		switch name := required[n]; {
		case name != "":
			if !utf8.Valid(raw) {
				return errProtobuf
			}
			return e.set(name, string(raw))
		case n == 5:
			return e.attribute(raw)
		case n >= 6 && n <= 8:
			if hasData {
				return errTwice
			}
			hasData, data = true, raw
			if n == 8 {
				return e.protoData(raw, &data)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if hasData {
		e.Data = append([]byte{}, data...)
	}
	return e, nil
}

// attribute reads one entry of the map of attributes.
func (e *Event) attribute(entry []byte) error {
	name, text := "", ""
	err := fields(entry, func(n int, raw []byte, _ uint64) (err error) {
		switch n {
		case 1:
			name = string(raw)
		case 2:
			text, err = attributeText(raw)
		}
		return err
	})
	if err != nil {
		return err
	}
	if name == "" || !utf8.ValidString(name) || !utf8.ValidString(text) {
		return errProtobuf
	}
	return e.set(name, text)
}

// attributeText returns a value as the JSON format writes it as a string.
func attributeText(value []byte) (text string, err error) {
	err = fields(value, func(n int, raw []byte, number uint64) error {
		switch n {
		case 1:
			text = strconv.FormatBool(number != 0)
		case 2:
			text = strconv.Itoa(int(int32(number))) //nolint:gosec // as the encoding of int32 demands
		case 3, 5, 6:
			text = string(raw)
		case 4:
			text = base64.StdEncoding.EncodeToString(raw)
		case 7:
			var at timestamppb.Timestamp
			if proto.Unmarshal(raw, &at) != nil || at.CheckValid() != nil {
				return errProtobuf
			}
			text = at.AsTime().Format(time.RFC3339Nano)
		}
		return nil
	})
	return text, err
}

// protoData reads a google.protobuf.Any.
func (e *Event) protoData(value []byte, data *[]byte) error {
	*data = nil
	err := fields(value, func(n int, raw []byte, _ uint64) error {
		switch n {
		case 1:
			e.typeURL = string(raw)
		case 2:
			*data = raw
		}
		return nil
	})
	if err == nil && e.typeURL == "" {
		return errProtobuf
	}
	return err
}
