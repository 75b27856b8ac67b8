package safetext

import (
	"regexp"
	"strings"
	"sync"
)

// A rule replaces quoted data in a text. A text without the hint is not searched.
type rule struct {
	hint    string
	pattern string
	with    string
}

const (
	quoted = `"(?:[^"\\\n]|\\.)*"?` // the end may be cut off
	// value matches the text after the name of a secret. random matches only text with a digit, so
	// that "token: expired" stays.
	value     = `(?:'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|[^\s&;,)}\]'"\x60]+)`
	random    = `(?:'[^']*[0-9][^']*'?|"[^"]*[0-9][^"]*"?|[^\s&;,)}\]'"\x60]*[0-9][^\s&;,)}\]'"\x60]*)`
	secretKey = `(?:api|access|secret|private|auth|account|shared)[_\- ]?key|client[_\- ]?secret`
	secret    = `(?:password|passwd|passphrase|pwd|secret|token|` + secretKey + `)`
)

// rules apply to texts of errors that a program had flattened, so that their types are lost. They
// cover the most common English texts. The first rules find passwords.
var rules = [...]rule{
	{"://", `([A-Za-z][A-Za-z0-9+.\-]*://)([^\s:@/]*:)?\S*@`, `${1}${2}xxxxx@`},
	{"assword:", `(\b\w*[Pp]assword:\s?)[^\s,;}\]]+`, `${1}xxxxx`},
	{"-----BEGIN", `-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|$)`, `xxxxx`},
	{":", `(?i)([a-z0-9_.\-]*(?:password|passwd|passphrase|pwd|` + secretKey + `)\s*:\s*)` + value, `${1}xxxxx`},
	{":", `(?i)([a-z0-9_.\-]*(?:secret|token)\s*:\s*)` + random, `${1}xxxxx`},
	{"eyJ", `\beyJ[A-Za-z0-9_\-]{5,}(?:\.[A-Za-z0-9_\-]*){0,4}`, `xxxxx`},
	{"_live_", `\b[a-z]{2,5}_live_[A-Za-z0-9]{6,}`, `xxxxx`},
	{"_test_", `\b(?:sk|rk|pk)_test_[A-Za-z0-9]{6,}`, `xxxxx`},
	{"whsec_", `\bwhsec_[A-Za-z0-9+/=]{6,}`, `xxxxx`},
	{"sk-", `\bsk-[A-Za-z0-9_\-]{20,}`, `xxxxx`},
	{"AKIA", `\bAKIA[A-Z0-9]{12,}`, `xxxxx`},
	{"ASIA", `\bASIA[A-Z0-9]{12,}`, `xxxxx`},
	{"AIza", `\bAIza[A-Za-z0-9_\-]{30,}`, `xxxxx`},
	{"gh", `\bgh[pousr]_[A-Za-z0-9]{16,}`, `xxxxx`},
	{"github_pat_", `\bgithub_pat_[A-Za-z0-9_]{16,}`, `xxxxx`},
	{"glpat-", `\bglpat-[A-Za-z0-9_\-]{16,}`, `xxxxx`},
	{"xox", `\bxox[abeoprs]-[A-Za-z0-9\-]{10,}`, `xxxxx`},
	{"SG.", `\bSG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}`, `xxxxx`},
	{` "http`, `\b(Get|Head|Post|Put|Patch|Delete|Options) "(https?://[^\s/?#"]*)[^\s"]*"?`,
		`${1} "${2}"`},
	{"=", `(?i)([a-z0-9_.\-]*` + secret + `\s*=\s*)('(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|[^\s&;,)'"\x60]+)`, `${1}xxxxx`},
	{`":`, `(?i)("[a-z0-9_.\-]*` + secret + `"\s*:\s*)` + quoted, `${1}"xxxxx"`},
	{`":`, `(?i)("[a-z0-9_.\-]*` + secret + `"\s*:\s*)-?[0-9][0-9.]*`, `${1}"xxxxx"`},
	// JSON inside another text.
	{`\":`, `(?i)(\\"[a-z0-9_.\-]*` + secret +
		`\\"\s*:\s*)(?:\\"(?:\\\\\\"|[^"\\\n]|\\[^"\n])*(?:\\")?|-?[0-9][0-9.]*)`, `${1}\"xxxxx\"`},
	// A DSN of go-sql-driver.
	{"@tcp(", `([^\s:/@"']+:)\S*@tcp\(`, `${1}xxxxx@tcp(`},
	{"@unix(", `([^\s:/@"']+:)\S*@unix\(`, `${1}xxxxx@unix(`},
	{"earer ", `(?i)\b(bearer)\s+[A-Za-z0-9._~+/\-]{8,}=*`, `${1} xxxxx`},
	{"uthorization", `(?i)(authorization[\\"']{0,2}\s*[:=]?\s*[\[\\"']{0,3}(?:basic|bearer|token|apikey|digest|negotiate|ntlm))\s+[A-Za-z0-9._~+/\-]{4,}=*`, `${1} xxxxx`},
	{`pars`, `\b(pars(?:e|ing)(?: time| value)?) ` + quoted, `${1} "…"`},
	{`invalid port "`, `invalid port ` + quoted, `invalid port`},
	{`URL escape "`, `URL escape ` + quoted, `URL escape`},
	{`extra text: "`, `extra text: ` + quoted, `extra text`},
	{`unmarshal "`, `unmarshal ` + quoted, `unmarshal "…"`},
	{`cannot unmarshal number `, `cannot unmarshal number \S+`, `cannot unmarshal number`},
	{`invalid character '`, `invalid character '(?:'|\\.[^']{0,12}|[^']{1,4})'`,
		`invalid character`},
	{`unknown field "`, `unknown field ` + quoted, `unknown field`},
	{`invalid number literal`, `(invalid number literal[a-z ,]*)` + quoted, `${1}"…"`},
	{`time: `, `\btime: ([a-z ]{1,40})` + quoted + `(?: in duration ` + quoted + `)?`,
		`time: ${1}"…"`},
	{`unknown time zone `, `unknown time zone \S+`, `unknown time zone`},
	{`Parse`, `\bParse(\w*)\(` + quoted + `\)?(?:: [^\n]*\(at "[^\n]*)?`, `Parse${1}("…")`},
	{`address `, `\baddress [^\n]*?: (invalid |missing |too many |unexpected )`, `address: ${1}`},
	{` address: `, `invalid (IP|CIDR|MAC) address: \S+`, `invalid ${1} address`},
	{`prefix: "`, `prefix: ` + quoted, `prefix: "…"`},
	{`in string "`, `in string ` + quoted, `in string "…"`},
	{`XML syntax error`, `(XML syntax error on line \d+):[^\n]*`, `${1}`},
	{`unable to encode `, `(?s)unable to encode .*?( into (?:binary|text) format|$)`,
		`unable to encode …${1}`},
	{`invalid `, `(invalid input (?:syntax|value) for [^":\n]{1,80}(?:"[^":\n]{1,80}")?):? "[^\n]*`,
		`${1}`},
	{`out of range`, `out of range: "[^\n]*`, `out of range`},
	{`out of range`, `value "[^\n]*" is out of range`, `value is out of range`},
	{`)=(`, `(Key \([^\n]*?\)=)\([^\n]*`, `${1}(…)`},
	{`Failing row contains`, `Failing row contains[^\n]*`, `Failing row contains (…)`},
	{`Duplicate entry '`, `Duplicate entry '[^\n]*' for key`, `Duplicate entry for key`},
	{`dup key: `, `dup key: [^\n]*`, `dup key`},
	{`duplicate key value is (`, `duplicate key value is \([^\n]*`, `duplicate key value is (…)`},
	{`ncorrect `, `\b([Ii]ncorrect [A-Za-z ]{1,40}value:) '[^\n]*`, `${1} …`},
	{` value '`, `(converting the \w+ value) '[^\n]*' to data type`, `${1} to data type`},
	{`driver.Value type `, `(driver\.Value type [^\s(]+) \((?s:.*?)\) (to|into) (an? )`,
		`${1} ${2} ${3}`},
	{`sql/driver: couldn't convert `, `sql/driver: couldn't convert (?s:.*?)( into type|$)`,
		`sql/driver: couldn't convert …${1}`},
	{`(line `, `(\(line \d+:\d+\)): [^\n]*`, `${1}`},
	{` !!`, `(cannot (?:unmarshal|decode|construct) !!\w+) \x60[^\n]*?\x60( into|\n|$)`,
		`${1}${2}`},
	{`error found in #`, `(?s)(error found in #\d+ byte of) .*`, `${1} …`},
	{`args beginning with`, `args beginning with[^\n]*`, `args`},
}

// compiledRules compiles a rule when a text first contains its hint.
var compiledRules = func() (list [len(rules)]func() *regexp.Regexp) {
	for i := range rules {
		r := &rules[i]
		list[i] = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(r.pattern) })
	}
	return list
}()

// scrub applies the rules to a text.
func scrub(text string) string {
	text = scrubSQL(text)
	for i := range rules {
		r := &rules[i]
		if strings.Contains(text, r.hint) {
			text = compiledRules[i]().ReplaceAllString(text, r.with)
		}
	}
	return scrubCards(text)
}

// cardLike matches runs of digits that are at least as long as a payment card number, in one piece
// or in groups.
var cardLike = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[0-9A-Za-z_\-]*\b[0-9](?:[ \-]?[0-9]){12,}\b[0-9A-Za-z_\-]*`)
})

// scrubCards removes numbers of payment cards (ISO/IEC 7812).
func scrubCards(text string) string {
	digits := 0
	for i := range len(text) {
		if '0' <= text[i] && text[i] <= '9' {
			digits++
		}
	}
	if digits < 13 {
		return text
	}
	return cardLike().ReplaceAllStringFunc(text, scrubGroups)
}

// scrubGroups removes card numbers from groups of digits. Some groups may have another meaning,
// such as an amount before the card or the expiry date after it.
func scrubGroups(found string) string {
	if number := strings.NewReplacer(" ", "", "-", "").Replace(found); isCard(number) {
		return "xxxxx"
	}
	groups := strings.Split(found, " ")
	kept := groups[:0]
	for len(groups) > 0 {
		n := cardGroups(groups)
		if n == 0 {
			kept, groups = append(kept, groups[0]), groups[1:]
			continue
		}
		kept, groups = append(kept, "xxxxx"), groups[n:]
	}
	return strings.Join(kept, " ")
}

// cardGroups returns how many of the first groups form a card number, or zero. Card numbers are
// written in groups of four or more digits, except for the last one. Lists of smaller numbers are
// no card numbers.
func cardGroups(groups []string) int {
	number := ""
	for i, g := range groups {
		number += strings.ReplaceAll(g, "-", "")
		switch {
		case len(number) > maxCard:
			return 0
		case isCard(number):
			return i + 1
		case len(g) < 4:
			return 0
		}
	}
	return 0
}

// The lengths of card numbers, in digits.
const minCard, maxCard = 13, 19

// isCard reports whether a number has the prefix and the length of a card network, and a valid Luhn
// check digit.
func isCard(number string) bool {
	if len(number) < minCard || len(number) > maxCard || strings.Trim(number, "0123456789") != "" {
		return false
	}
	n, first := len(number), number[:2]
	switch {
	case first[0] == '4':
	case first >= "51" && first <= "55", first >= "22" && first <= "27":
		if n != 16 {
			return false
		}
	case first == "34", first == "37":
		if n != 15 {
			return false
		}
	case first == "30", first == "35", first == "36", first == "38", first == "39", first[0] == '6':
		if n < 14 {
			return false
		}
	default:
		return false
	}
	sum := 0
	for i := range n {
		d := int(number[n-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// flatSQL matches the text that pgx makes of a Postgres error: severity, in the language of the
// server, message and code.
var flatSQL = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`(?s)(?:\p{Lu}{3,}|[\p{Han}\p{Katakana}\p{Hangul}\p{Georgian}ー]{2,}): (.*?) \(SQLSTATE ([0-9A-Z]{5})\)`,
	)
})

// scrubSQL replaces flattened Postgres errors by the text that errors with a known type get.
func scrubSQL(text string) string {
	if !strings.Contains(text, " (SQLSTATE ") {
		return text
	}
	return flatSQL().ReplaceAllStringFunc(text, func(match string) string {
		found := flatSQL().FindStringSubmatch(match)
		return sqlText(nil, found[2], found[1])
	})
}
