// Package words writes numbers for people.
package words

import (
	"strconv"
	"strings"
)

// irregular has the plurals that are not made with an s.
var irregular = map[string]string{"retry": "retries"}

// Count returns a number with its noun in the singular: 1 broker, 3 brokers, 0 brokers.
func Count[N int | int16 | int64](n N, noun string) string {
	switch plural, ok := irregular[noun]; {
	case n == 1:
		return "1 " + noun
	case ok:
		return Number(int64(n)) + " " + plural
	}
	return Number(int64(n)) + " " + noun + "s"
}

// Number groups the digits of n from five digits on: 12 345 678 with thin spaces that do not break.
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
