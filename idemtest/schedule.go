package idemtest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fault is something that happens to a worker at a point.
type fault string

// The faults of a schedule.
const (
	die    fault = "die"    // the process ends, without any more code of its own
	freeze fault = "freeze" // the process stands still beyond its lease, another takes over, it goes on
	fail   fault = "fail"   // the call returns an error: before a point without its effect, else with it
	copies fault = "copies" // a second worker gets a copy of each record
	others fault = "others" // a second worker handles the other partitions
)

var allFaults = []fault{die, freeze, fail, copies, others}

// step is a fault at the point with this number. The points of the first worker count from 1.
type step struct {
	point int
	fault fault
}

// schedule is a list of steps, by point.
type schedule []step

// at returns the fault at a point, or "".
func (s schedule) at(point int) fault {
	for _, one := range s {
		if one.point == point {
			return one.fault
		}
	}
	return ""
}

// String returns the form that [Only] takes.
func (s schedule) String() string {
	texts := make([]string, len(s))
	for i, one := range s {
		texts[i] = fmt.Sprintf("%d:%s", one.point, one.fault)
	}
	return strings.Join(texts, " ")
}

// parseSchedule reads the form of String.
func parseSchedule(text string) (schedule, error) {
	var s schedule
	for _, one := range strings.Fields(text) {
		number, name, ok := strings.Cut(one, ":")
		point, err := strconv.Atoi(number)
		if !ok || err != nil || point < 1 || !slices.Contains(allFaults, fault(name)) {
			return nil, fmt.Errorf("idemtest: %q is no step of a schedule: want a number, a colon, and one "+
				"of %q", one, allFaults)
		}
		s = append(s, step{point, fault(name)})
	}
	slices.SortFunc(s, func(a, b step) int { return cmp.Compare(a.point, b.point) })
	return s, nil
}

// point is a moment at which a fault may happen.
type point struct {
	what string
	call bool // of the handler to something outside
}

// singles returns the schedules with one fault. Those with the shortest stories come first.
func singles(points []point, partitions int) (all []schedule) {
	for _, f := range []fault{die, fail, others, copies, freeze} {
		for i, p := range points {
			if slices.Contains(faultsAt(p, partitions), f) {
				all = append(all, schedule{{i + 1, f}})
			}
		}
	}
	return all
}

// faultsAt returns the faults that may happen at a point.
func faultsAt(p point, partitions int) []fault {
	list := []fault{die, freeze, copies}
	if partitions > 1 {
		list = append(list, others)
	}
	if p.call {
		list = append(list, fail)
	}
	return list
}

// pair returns a schedule with two faults. pick returns a number below its argument. The second
// point may lie behind the last point of a run without faults, since a fault makes a run longer.
func pair(points []point, partitions int, pick func(int) int) schedule {
	first := pick(len(points))
	second := first + 1 + pick(2*len(points)-first)
	f := faultsAt(points[first], partitions)
	g := []fault{die, freeze, copies, fail}
	return schedule{{first + 1, f[pick(len(f))]}, {second + 1, g[pick(len(g))]}}
}

// shrink returns the shortest schedule made of steps of s that still breaks.
func shrink(s schedule, breaks func(schedule) bool) schedule {
	for i := 0; i < len(s) && len(s) > 1; {
		if shorter := slices.Delete(slices.Clone(s), i, i+1); breaks(shorter) {
			s, i = shorter, 0
			continue
		}
		i++
	}
	return s
}
