package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// short writes a duration in whole seconds, or in days from two days on.
func short(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs < time.Second:
		return d.Round(time.Millisecond).String()
	case abs < 2*day:
		return d.Round(time.Second).String()
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

// lasting writes a duration exactly, with days if it has at least two.
func lasting(d time.Duration) string {
	if d >= 2*day && d%time.Hour == 0 {
		if d%day == 0 {
			return fmt.Sprintf("%d days", d/day)
		}
		return fmt.Sprintf("%d days %s", d/day, strings.TrimSuffix((d%day).String(), "0m0s"))
	}
	return d.String()
}

// list writes the first few names, and the number of the others.
func list(names []string) string {
	const some = 5
	text := strings.Join(names[:min(some, len(names))], ", ")
	if more := len(names) - some; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
