// Package words writes numbers for people.
package words

import (
	"strconv"
	"strings"
)

// irregular has the plurals that are not made with an s.
var irregular = map[string]string{"retry": "retries"}

// Count returns a number with its noun for a page: 1 broker, 3 brokers, 12 345 brokers.
func Count[N int | int16 | int64](n N, noun string) string {
	return Number(int64(n)) + " " + nounFor(int64(n), noun)
}

// Plain returns a number with its noun for a terminal or a log: 1 broker, 12345 brokers. Other
// numbers there have no groups of digits either, and people search for them and copy them.
func Plain[N int | int16 | int64](n N, noun string) string {
	return strconv.FormatInt(int64(n), 10) + " " + nounFor(int64(n), noun)
}

// nounFor returns the singular of a noun for one, and otherwise the plural.
func nounFor(n int64, noun string) string {
	switch plural, ok := irregular[noun]; {
	case n == 1:
		return noun
	case ok:
		return plural
	}
	return noun + "s"
}

// Number returns n for a page. From five digits on, thin spaces that do not break group the digits:
// 12 345 678.
func Number(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	if len(s) <= 4 {
		return sign + s
	}
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(c)
	}
	return sign + b.String()
}
