package cloudevents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idem"
)

var (
	errJSON    = errors.New("the CloudEvent is not a JSON object as the JSON format demands")
	errUnicode = fmt.Errorf("%w: an attribute of the CloudEvent is not valid Unicode", idem.ErrInvalid)
)

// parseJSON reads the JSON format. Errors do not quote the value.
func parseJSON(value []byte) (*Event, error) {
	e := &Event{Attributes: make(map[string]string)}
	var data, encoded json.RawMessage
	d := json.NewDecoder(bytes.NewReader(value))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, errJSON
	}
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		var raw json.RawMessage
		if err != nil || !ok || d.Decode(&raw) != nil {
			return nil, errJSON
		}
		if err := e.member(name, raw, &data, &encoded); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, errJSON
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errJSON
	}
	if err := e.jsonData(data, encoded); err != nil {
		return nil, err
	}
	return e, nil
}

// member keeps one member of the object.
func (e *Event) member(name string, raw json.RawMessage, data, encoded *json.RawMessage) error {
	into := map[string]*json.RawMessage{"data": data, "data_base64": encoded}[name]
	switch {
	case into == nil:
	case *into != nil:
		return errTwice
	default:
		*into = raw
		return nil
	}
	if string(raw) == "null" { // as an attribute that is absent
		return nil
	}
	text := string(raw)
	switch raw[0] {
	case '"':
		if json.Unmarshal(raw, &text) != nil {
			return errJSON
		}
		if !isUnicode(raw, text) {
			return errUnicode
		}
	case '{', '[':
		return errJSON
	}
	return e.set(name, text)
}

var escape = regexp.MustCompile(`\\(u[0-9A-Fa-f]{4}|.)`)

// isUnicode reports whether raw, a JSON string that was decoded into text, is valid Unicode.
// encoding/json writes U+FFFD in place of invalid UTF-8 and of half surrogates. Different IDs would
// become equal (P-22). So each U+FFFD of the text must stand in raw too, as a character or an escape.
func isUnicode(raw []byte, text string) bool {
	const replacement = string(utf8.RuneError)
	n := strings.Count(text, replacement)
	if n == 0 {
		return true
	}
	n -= bytes.Count(raw, []byte(replacement))
	for _, e := range escape.FindAll(raw, -1) {
		if bytes.EqualFold(e, []byte(`\ufffd`)) {
			n--
		}
	}
	return n == 0
}

// jsonData finds the data. data_base64 is bytes. A string in data is text, unless the data is JSON.
func (e *Event) jsonData(data, encoded json.RawMessage) error {
	switch {
	case data != nil && encoded != nil:
		return errTwice
	case encoded != nil:
		var text string
		if json.Unmarshal(encoded, &text) != nil {
			return errJSON
		}
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return errors.New("data_base64 of the CloudEvent is not valid base64")
		}
		e.Data = b
	case data != nil:
		if e.DataContentType == "" {
			e.DataContentType = "application/json"
		}
		var text string
		if !isJSON(e.DataContentType) && json.Unmarshal(data, &text) == nil && data[0] == '"' {
			data = json.RawMessage(text)
		}
		e.Data = data
	}
	return nil
}

// isJSON reports whether a media type is JSON, as the JSON format of CloudEvents defines that.
func isJSON(media string) bool {
	media, _, _ = strings.Cut(strings.ToLower(media), ";")
	_, sub, _ := strings.Cut(strings.TrimSpace(media), "/")
	return sub == "json" || strings.HasSuffix(sub, "+json")
}
