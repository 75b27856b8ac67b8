package safetext

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// server handles the errors that servers send. They are recognised by the methods of the client
// libraries' types.
func server(err error) (safe string, swaps []swap, ok bool) {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by the caller
	case interface{ SQLState() string }:
		text := err.Error()
		return sqlText(err, e.SQLState(), sqlMessage(text)), wordSwap(sqlMessage(text)), true
	case interface{ RedisError() }:
		return redisText(err.Error()), nil, true
	case interface {
		ErrorCode() string
		ErrorMessage() string
	}:
		return "API error " + nameOr(e.ErrorCode(), "without a code"), wordSwap(e.ErrorMessage()),
			true
	}
	return "", nil, false
}

// sqlText describes a database error by its code, which means the same in every language. The
// result has the names of schema objects that the message contains.
func sqlText(err error, code, message string) string {
	text := "SQLSTATE " + nameOr(code, "?")
	if name := conditionOf(code); name != "" {
		text += " (" + name + ")"
	}
	if detail, ok := plainReasons[message]; ok {
		return text + ", " + detail
	}
	// lib/pq; the letters are those of the protocol
	if g, ok := err.(interface{ Get(byte) string }); ok {
		for _, f := range [...]struct {
			field byte
			name  string
		}{{'n', "constraint"}, {'t', "table"}, {'c', "column"}} {
			if v := g.Get(f.field); isName(v) {
				text += ", " + f.name + " " + strconv.Quote(v)
			}
		}
		return text
	}
	return text + namesIn(code, message)
}

// plainReasons distinguishes errors that share a code.
var plainReasons = map[string]string{
	"canceling statement due to statement timeout":             "statement timeout",
	"canceling statement due to user request":                  "at the client's request",
	"canceling statement due to conflict with recovery":        "conflict with recovery",
	"canceling statement due to lock timeout":                  "lock timeout",
	"could not serialize access due to concurrent update":      "concurrent update",
	"could not serialize access due to concurrent delete":      "concurrent delete",
	"terminating connection due to administrator command":      "administrator command",
	"terminating connection due to idle-session timeout":       "idle session",
	"terminating connection due to unexpected postmaster exit": "postmaster exit",
}

// sentences matches Postgres messages that name objects of the schema and never a value. A message
// in another language, or from a trigger of the user, does not match; then the code stands alone.
var sentences = sync.OnceValue(func() map[string][]*regexp.Regexp {
	list := map[string][]*regexp.Regexp{}
	for _, s := range [...]struct{ code, text string }{
		{"23505", `duplicate key value violates unique constraint "<constraint>"`},
		{"23502", `null value in column "<column>" of relation "<table>" violates not-null constraint`},
		{"23502", `null value in column "<column>" violates not-null constraint`},
		{"23503", `insert or update on table "<table>" violates foreign key constraint "<constraint>"`},
		{"23503", `update or delete on table "<table>" violates foreign key constraint "<constraint>" on table "<from>"`},
		{"23514", `new row for relation "<table>" violates check constraint "<constraint>"`},
		{"23514", `value for domain <domain> violates check constraint "<constraint>"`},
		{"23P01", `conflicting key value violates exclusion constraint "<constraint>"`},
		{"22001", `value too long for type character varying\(<length>\)`},
		{"22001", `value too long for type character\(<length>\)`},
		{"42P01", `relation "<table>" does not exist`},
		{"42703", `column "<column>" does not exist`},
		{"42703", `column "<column>" of relation "<table>" does not exist`},
		{"42501", `permission denied for table <table>`},
		{"42501", `permission denied for schema <schema>`},
		{"42501", `permission denied for sequence <sequence>`},
		{"42501", `permission denied for function <function>`},
		{"3D000", `database "<database>" does not exist`},
		{"28P01", `password authentication failed for user "<user>"`},
		{"28000", `role "<user>" does not exist`},
	} {
		pattern := regexp.MustCompile(`<(\w+)>`).ReplaceAllString(s.text,
			`(?P<$1>[\pL\d_$$.-]{1,63})`)
		list[s.code] = append(list[s.code], regexp.MustCompile(`^`+pattern+`$`))
	}
	return list
})

func namesIn(code, message string) string {
	if len(message) > 512 {
		return ""
	}
	for _, re := range sentences()[code] {
		found := re.FindStringSubmatch(message)
		if found == nil {
			continue
		}
		text := ""
		for i, name := range re.SubexpNames() {
			if i > 0 {
				text += ", " + name + " " + strconv.Quote(found[i])
			}
		}
		return text
	}
	return ""
}

// sqlMessage removes the texts that clients put around the server's message: "ERROR: message
// (SQLSTATE 22P02)", "pq: message".
func sqlMessage(text string) string {
	if i := strings.LastIndex(text, " ("); i >= 0 && strings.HasSuffix(text, ")") {
		text = text[:i]
	}
	if i := strings.Index(text, ": "); i >= 0 && i < 16 {
		text = text[i+2:]
	}
	return text
}

// wordSwap replaces the message wherever the text repeats it. Messages shorter than 12 bytes are
// not replaced, since they could be any word.
func wordSwap(message string) []swap {
	if len(message) >= 12 {
		return []swap{{message, "…"}}
	}
	return nil
}

// redisTexts are beginnings of Redis error texts. The rest of such a text may be a command with its
// arguments.
var redisTexts = [...]string{
	"redis: nil", "redis: transaction failed",
	"WRONGTYPE Operation against a key holding the wrong kind of value",
	"OOM command not allowed when used memory > 'maxmemory'",
	"READONLY You can't write against a read only replica",
	"LOADING Redis is loading the dataset in memory",
	"NOAUTH Authentication required",
	"WRONGPASS invalid username-password pair or user is disabled",
	"CLUSTERDOWN The cluster is down", "CLUSTERDOWN Hash slot not served",
	"MASTERDOWN Link with MASTER is down",
	"BUSY Redis is busy running a script", "NOSCRIPT No matching script",
	"CROSSSLOT Keys in request don't hash to the same slot",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	"EXECABORT Transaction discarded because of previous errors",
	"MISCONF Redis is configured to save RDB snapshots",
	"NOREPLICAS Not enough good replicas to write",
	"NOPERM User", "NOPERM this user has no permissions", "NOPERM No permissions to access a key",
	"ERR The user executing the script can't run this command",
	"ERR The user executing the script can't access at least one of the keys",
	"ERR ACL failure in script",
	"ERR max number of clients reached", "ERR value is not an integer or out of range",
	"ERR value is not a valid float",
	"ERR syntax error", "ERR no such key", "ERR index out of range",
	"ERR increment or decrement would overflow",
	"ERR unknown command", "ERR unknown subcommand", "ERR wrong number of arguments",
	"ERR invalid expire time",
	"ERR Client sent AUTH, but no password is set",
	"ERR AUTH <password> called without any password configured",
	"ERR invalid password", "ERR DB index is out of range", "ERR Protocol error",
	"ERR Error running script", "ERR Error compiling script",
}

// redisRefusal matches the refusal of a command, up to the name of the command. The name of the
// user is data; Redis permits no space in it.
var redisRefusal = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(NOPERM|ERR ACL failure in script:) (this user|User)(?: \S{1,256})? ` +
		`(has no permissions to run the '[a-z0-9._-]{1,63}(?:\|[a-z0-9._-]{1,63})?' command)`)
})

func redisText(text string) string {
	if found := redisRefusal().FindStringSubmatch(text); found != nil {
		user := found[2]
		if user == "User" {
			user += " …"
		}
		return found[1] + " " + user + " " + found[3]
	}
	for _, known := range &redisTexts {
		if strings.HasPrefix(text, known) {
			return known
		}
	}
	code, rest, _ := strings.Cut(text, " ")
	if len(code) < 2 || len(code) > 16 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "Redis error"
	}
	if code == "MOVED" || code == "ASK" {
		if slot, node, _ := strings.Cut(rest, " "); isName(slot) &&
			!strings.ContainsAny(node, "@/ ") && len(node) < 128 {
			return text
		}
	}
	return code + " from Redis"
}

// isName reports whether s can be a name of the schema or a code.
func isName(s string) bool {
	for _, r := range s {
		plain := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			strings.ContainsRune("_$.-", r)
		if r < 0x80 && !plain || r == '\uFFFD' {
			return false
		}
	}
	return s != "" && len(s) <= 63
}

func nameOr(s, otherwise string) string {
	if isName(s) {
		return s
	}
	return otherwise
}
