package main

import (
	"errors"
	"strconv"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/jsonv2"
)

// decoderRows repeat rows of Idem with another decoder, and without a decoder. The row without a
// decoder has the order from the Kafka key, and shows the time of the rest.
func decoderRows(rows []row) (list []row) {
	decoders := []struct {
		suffix, about string
		option        idem.Option
	}{
		{"-jsonv2", ", decoded by codec/jsonv2", jsonv2.Decode()},
		{"-raw", ", no JSON decoded", idem.PureDecode(decodeKey)},
	}
	for _, r := range rows {
		switch r.name {
		case "idem-onbatchtx", "idem-redis-onbatch", "idem-redis-on":
		default:
			continue
		}
		for _, d := range decoders {
			again := r
			again.name, again.about, again.core = r.name+d.suffix, r.about+d.about, false
			again.options = []idem.Option{d.option}
			list = append(list, again)
		}
	}
	return list
}

var errNoPayment = errors.New("the record is no payment")

// decodeKey finds the order in the Kafka key. Orders have the numbers of the events, from 1.
func decodeKey(m *idem.Message, into any) error {
	p, ok := into.(*payment)
	id, err := strconv.ParseInt(string(m.Key), 10, 64)
	if !ok || err != nil {
		return errNoPayment
	}
	p.OrderID, p.Seq = id, int(id-1)
	return nil
}
