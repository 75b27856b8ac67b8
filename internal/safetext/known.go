package safetext

import (
	"context"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// knownText returns a safe text for an error type that is known. The result ok is false for unknown
// types, and for types with a cause that has a text of its own. Then swaps lists the parts of the
// text to replace.
func knownText(err error) (safe string, swaps []swap, ok bool) {
	defer func() {
		if recover() != nil { // a nil pointer in an interface
			safe, swaps, ok = "", nil, false
		}
	}()
	switch err { //nolint:errorlint // the tree is walked by the caller
	case io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded:
		return err.Error(), nil, true
	}
	if safe, ok = decoding(err); ok {
		return safe, nil, true
	}
	if safe, ok = address(err); ok {
		return safe, nil, true
	}
	if e, isURL := err.(*url.Error); isURL { //nolint:errorlint // the tree is walked by the caller
		at := place(e.URL)
		return "", []swap{{strconv.Quote(e.URL), strconv.Quote(at)}, {e.URL, at}}, false
	}
	return server(err)
}

// decoding handles the errors of the standard library's decoders.
func decoding(err error) (string, bool) {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by the caller
	case *json.SyntaxError:
		return "invalid JSON at byte " + strconv.FormatInt(e.Offset, 10) + ": " +
			withoutChar(e.Error()), true
	case *json.UnmarshalTypeError:
		return unmarshalType(e), true
	case *json.InvalidUnmarshalError:
		return e.Error(), true
	case *json.UnsupportedValueError:
		return "json: unsupported value", true
	case *json.UnsupportedTypeError:
		return e.Error(), true
	case *strconv.NumError:
		return "strconv." + e.Func + ": " + numProblem(e.Err), true
	case *time.ParseError:
		return timeProblem(e), true
	case base64.CorruptInputError, base32.CorruptInputError:
		return e.Error(), true // the text has a position only
	case hex.InvalidByteError:
		return "encoding/hex: invalid byte", true
	}
	return "", false
}

// withoutChar removes the character from "invalid character 'x' after object key".
func withoutChar(s string) string {
	const before = "invalid character '"
	rest, ok := strings.CutPrefix(s, before)
	if !ok {
		if s == "unexpected end of JSON input" {
			return s
		}
		return "invalid"
	}
	if len(rest) > 1 {
		if i := strings.Index(rest[1:], "' "); i >= 0 && i < 16 {
			return "invalid character " + rest[1+i+len("' "):]
		}
	}
	return "invalid character"
}

func unmarshalType(e *json.UnmarshalTypeError) string {
	kind, _, _ := strings.Cut(e.Value, " ") // "number 12345"
	switch kind {
	case "number", "string", "object", "array", "bool", "null":
	default:
		kind = "value"
	}
	into := "a Go value"
	if e.Type != nil {
		into = "Go value of type " + e.Type.String()
	}
	if e.Struct != "" || e.Field != "" {
		into = strings.Replace(into, "Go value", "Go struct field "+e.Struct+"."+e.Field, 1)
	}
	return "json: cannot unmarshal " + kind + " at byte " + strconv.FormatInt(e.Offset, 10) +
		" into " + into
}

func numProblem(err error) string {
	if errors.Is(err, strconv.ErrRange) || errors.Is(err, strconv.ErrSyntax) {
		return err.Error()
	}
	return "invalid argument"
}

func timeProblem(e *time.ParseError) string {
	problem := "does not match"
	if strings.HasSuffix(e.Message, "out of range") && !strings.ContainsRune(e.Message, '"') {
		problem = strings.TrimPrefix(e.Message, ": ")
	}
	return "parsing time as " + strconv.Quote(e.Layout) + ": " + problem
}

// address handles errors about addresses. Addresses of servers contain passwords, and those of
// requests contain personal data.
func address(err error) (string, bool) {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by the caller
	case *url.Error:
		if e.Op == "parse" { // its cause quotes parts of the URL
			return "parse URL: " + urlProblem(e.Err), true
		}
	case url.EscapeError, url.InvalidHostError:
		return urlProblem(err), true
	case *textproto.Error: // of a mail server, which repeats the address
		return mailReply(e), true
	case textproto.ProtocolError:
		return "malformed protocol text", true
	case *net.AddrError:
		return "address: " + addrProblem(e.Err), true
	case *net.ParseError:
		return "invalid " + e.Type, true
	}
	return "", false
}

// mailReply keeps the code of a reply, and the enhanced status code (RFC 3463).
func mailReply(e *textproto.Error) string {
	text := "server reply " + strconv.Itoa(e.Code)
	if more, _, _ := strings.Cut(e.Msg, " "); len(more) <= 9 && strings.Count(more, ".") == 2 &&
		strings.Trim(more, "0123456789.") == "" {
		text += " " + more
	}
	return text
}

func urlProblem(err error) string {
	var escape url.EscapeError
	var host url.InvalidHostError
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case errors.As(err, &escape):
		return "invalid URL escape"
	case errors.As(err, &host):
		return "invalid character in host name"
	case strings.HasPrefix(text, "invalid port"):
		return "invalid port after host"
	case text == "missing protocol scheme", text == "net/url: invalid userinfo",
		text == "empty url",
		text == "net/url: invalid control character in URL",
		text == "first path segment in URL cannot contain colon":
		return text
	}
	return "invalid"
}

// place returns the scheme and the host of a URL, without path and query.
func place(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "…"
	}
	return u.Scheme + "://" + u.Host
}

func addrProblem(text string) string {
	switch text {
	case "missing port in address", "too many colons in address", "missing ']' in address",
		"unexpected '[' in address",
		"unexpected ']' in address", "no suitable address found", "mismatched local address type",
		"unexpected address type":
		return text
	}
	return "invalid"
}
