package outboxview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Spans writes ascending numbers as spans, such as 0-31,40. Without numbers the result is "none".
func Spans(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(numbers[i]))
		if last > i {
			fmt.Fprintf(&b, "-%d", numbers[last])
		}
		i = last + 1
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()
}

// Epochs writes the least and the greatest epoch, such as 3-5, or 3 if both are equal. Without
// epochs the result is "-".
func Epochs(all []int64) string {
	if len(all) == 0 {
		return "-"
	}
	least, most := slices.Min(all), slices.Max(all)
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d-%d", least, most)
}
