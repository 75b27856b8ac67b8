package cloudevents

import (
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idem"
)

// Event is a CloudEvent with the data as bytes. A handler that needs attributes takes an
// idem.Event[cloudevents.Event].
type Event struct {
	// Attributes are the attributes as text, in lower case and without "ce_": id, source, type,
	// specversion, subject, time, dataschema, extensions. A time is in RFC 3339, and bytes are in
	// base64, as in the JSON format.
	Attributes map[string]string
	// DataContentType is the media type of Data. Empty if the event has no such attribute.
	DataContentType string
	// Data is the data; nil without data. Read-only.
	Data []byte

	typeURL string // of a Protobuf message
}

var (
	errVersion = errors.New("the CloudEvents attribute specversion is not 1.0")
	errTwice   = fmt.Errorf("%w: an attribute or the data appears more than once", idem.ErrAmbiguous)
	errBatch   = errors.New("a batch of CloudEvents must not be one Kafka message")
)

const contentType = "content-type"

// parse returns the event of a message.
func parse(m *idem.Message) (*Event, error) {
	media, err := mediaType(m)
	if err != nil {
		return nil, err
	}
	var e *Event
	switch format, structured := strings.CutPrefix(media, "application/cloudevents"); {
	case !structured:
		e, err = parseBinary(m)
	case format == "+json" || format == "":
		e, err = parseJSON(m.Value)
	case format == "+protobuf":
		e, err = parseProtobuf(m.Value)
	case strings.HasPrefix(format, "-batch"):
		return nil, errBatch
	default:
		return nil, errors.New("the format of the CloudEvent is neither JSON nor Protobuf")
	}
	if err != nil {
		return nil, err
	}
	if e.Attributes["specversion"] != "1.0" {
		return nil, errVersion
	}
	return e, nil
}

// mediaType returns the media type of the header content-type, in lower case. Empty without it.
func mediaType(m *idem.Message) (string, error) {
	found, n := "", 0
	for _, h := range m.Headers {
		if strings.EqualFold(h.Key, contentType) {
			found = string(h.Value)
			n++
		}
	}
	if n > 1 {
		return "", fmt.Errorf("%w: header content-type appears %d times", idem.ErrAmbiguous, n)
	}
	media, _, _ := strings.Cut(found, ";")
	return strings.ToLower(strings.TrimSpace(media)), nil
}

// set sets an attribute, which must not be set yet.
func (e *Event) set(name, value string) error {
	if name == "datacontenttype" {
		if e.DataContentType != "" {
			return errTwice
		}
		e.DataContentType = value
		return nil
	}
	if _, twice := e.Attributes[name]; twice {
		return errTwice
	}
	e.Attributes[name] = value
	return nil
}

// parseBinary reads the headers of binary mode.
func parseBinary(m *idem.Message) (*Event, error) {
	e := &Event{Attributes: make(map[string]string), Data: m.Value}
	for _, h := range m.Headers {
		name, ok := strings.CutPrefix(h.Key, "ce_")
		if strings.EqualFold(h.Key, contentType) {
			name, ok = "datacontenttype", true
		}
		if !ok {
			continue
		}
		if err := e.set(name, string(h.Value)); err != nil {
			return nil, err
		}
	}
	if len(e.Attributes) == 0 {
		return nil, fmt.Errorf("%w: no header begins with ce_, and content-type names no CloudEvent",
			idem.ErrNotFound)
	}
	return e, nil
}
