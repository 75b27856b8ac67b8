package mysql

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// Texts of statements have their values as literals, in digits and hexadecimal digits only. A
// statement with arguments costs two round trips more with this driver.

// numbers returns a list of numbers. An empty list matches no number.
func numbers[T int | int64](all []T) string {
	if len(all) == 0 {
		return "(NULL)"
	}
	var b strings.Builder
	b.WriteByte('(')
	for i, n := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(int64(n), 10))
	}
	b.WriteByte(')')
	return b.String()
}

// table is a derived table with one column, seq. all must not be empty.
func table(all []int64) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, n := range all {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		b.WriteString("SELECT ")
		b.WriteString(strconv.FormatInt(n, 10))
		if i == 0 {
			b.WriteString(" AS seq")
		}
	}
	b.WriteByte(')')
	return b.String()
}

// binary returns a literal of bytes.
func binary(s string) string { return "x'" + hex.EncodeToString([]byte(s)) + "'" }

// text returns a literal of UTF-8.
func text(s string) string { return "_utf8mb4 " + binary(s) }

// micros returns the expression of a time as microseconds since 1970. The driver's parseTime has no
// effect on the result.
func micros(column string) string {
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + column + ")"
}
