package schemaregistry

import (
	"errors"
	"math"

	"github.com/hamba/avro/v2"
)

// maxAvroDepth limits the records, arrays, maps and unions inside each other in one value, because
// each takes some of the stack.
const maxAvroDepth = 10_000

var (
	errAvroCut    = errors.New("the value ends too early")
	errAvroLength = errors.New("a length, a count or a block's size is invalid")
	errAvroNumber = errors.New("an integer is too long")
	errAvroBranch = errors.New("a union has no such branch")
	errAvroEmpty  = errors.New("too many values without bytes")
	errAvroDepth  = errors.New("the value is nested too deep")
)

// checkAvro returns an error if a payload cannot be a value of its writer's schema. The Avro library
// believes the counts of arrays and maps, so that a corrupt one would keep it busy for ever.
//
// A payload that passes is read to the same place by each of the library's decoders, including those
// that skip. Bytes behind the value are not looked at.
func checkAvro(writer avro.Schema, payload []byte) error {
	w := avroWalk{rest: payload, empty: maxAvro}
	return w.value(writer, 0)
}

// avroWalk goes through a payload.
type avroWalk struct {
	rest  []byte
	empty int // how many more values may have no bytes
}

// value goes through a value, and counts it if it has no bytes: there may be any number of those.
func (w *avroWalk) value(s avro.Schema, depth int) error {
	if depth > maxAvroDepth {
		return errAvroDepth
	}
	before := len(w.rest)
	if err := w.inside(referred(s), depth); err != nil {
		return err
	}
	if before == len(w.rest) {
		if w.empty--; w.empty < 0 {
			return errAvroEmpty
		}
	}
	return nil
}

func (w *avroWalk) inside(s avro.Schema, depth int) error {
	switch s := s.(type) {
	case *avro.PrimitiveSchema:
		return w.primitive(s.Type())
	case *avro.EnumSchema:
		_, err := w.integer(maxIntBytes)
		return err
	case *avro.FixedSchema:
		return w.skip(int64(s.Size()))
	case *avro.ArraySchema:
		return w.blocks(s.Items(), false, depth+1)
	case *avro.MapSchema:
		return w.blocks(s.Values(), true, depth+1)
	case *avro.UnionSchema:
		return w.branch(s.Types(), depth+1)
	case *avro.RecordSchema:
		for _, f := range s.Fields() {
			if err := w.value(f.Type(), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *avroWalk) primitive(t avro.Type) error {
	switch t {
	case avro.String, avro.Bytes:
		return w.bytes()
	case avro.Int:
		_, err := w.integer(maxIntBytes)
		return err
	case avro.Long:
		_, err := w.integer(maxLongBytes)
		return err
	case avro.Boolean:
		return w.skip(1)
	case avro.Float:
		return w.skip(4)
	case avro.Double:
		return w.skip(8)
	default:
		return nil
	}
}

func (w *avroWalk) branch(types avro.Schemas, depth int) error {
	n, err := w.integer(maxIntBytes)
	switch {
	case err != nil:
		return err
	case n < 0 || n >= int64(len(types)):
		return errAvroBranch
	}
	return w.value(types[n], depth)
}

// blocks goes through an array or a map. A count below zero is followed by the size of its block.
func (w *avroWalk) blocks(element avro.Schema, keys bool, depth int) error {
	for {
		count, err := w.integer(maxLongBytes)
		if count == 0 || err != nil {
			return err
		}
		size := int64(0)
		if count < 0 {
			if size, err = w.integer(maxLongBytes); err != nil {
				return err
			}
			count = -count
		}
		if count < 0 || size < 0 { // the lowest integer stays below zero
			return errAvroLength
		}
		before := len(w.rest)
		if err := w.elements(count, element, keys, depth); err != nil {
			return err
		}
		if size != 0 && size != int64(before-len(w.rest)) {
			return errAvroLength
		}
	}
}

func (w *avroWalk) elements(count int64, element avro.Schema, keys bool, depth int) error {
	for range count {
		if keys {
			if err := w.bytes(); err != nil {
				return err
			}
		}
		if err := w.value(element, depth); err != nil {
			return err
		}
	}
	return nil
}

// bytes skips a string or bytes.
func (w *avroWalk) bytes() error {
	n, err := w.integer(maxLongBytes)
	if err != nil {
		return err
	}
	return w.skip(n)
}

func (w *avroWalk) skip(n int64) error {
	switch {
	case n < 0:
		return errAvroLength
	case n > int64(len(w.rest)):
		return errAvroCut
	}
	w.rest = w.rest[n:]
	return nil
}

const (
	maxIntBytes  = 5
	maxLongBytes = 10
)

// integer reads an int or a long of at most that many bytes. Like the library, it drops bits above
// the 32 of an int and the 64 of a long.
func (w *avroWalk) integer(most int) (int64, error) {
	var v uint64
	for i, b := range w.rest {
		if i == most {
			return 0, errAvroNumber
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			w.rest = w.rest[i+1:]
			if most == maxIntBytes {
				v &= math.MaxUint32
			}
			return int64(v>>1) ^ -int64(v&1), nil
		}
	}
	return 0, errAvroCut
}
