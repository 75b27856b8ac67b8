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

// step is a fault at the point with this number. The points of the first process count from 1. A
// process that takes over after its death counts on.
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
	for i := range s[min(1, len(s)):] {
		if s[i].point == s[i+1].point {
			return nil, fmt.Errorf("idemtest: the schedule %q has two faults at point %d", s, s[i].point)
		}
	}
	return s, nil
}

// reached returns an error if a fault of a schedule could not happen in a run with these points.
func (s schedule) reached(points []point, parts int) error {
	for _, one := range s {
		if one.point > len(points) {
			return fmt.Errorf("idemtest: the schedule %q has a fault at point %d, but its run has only %d "+
				"points: search again without Only", s, one.point, len(points))
		}
		if at := points[one.point-1]; !slices.Contains(faultsAt(at, parts), one.fault) {
			return fmt.Errorf("idemtest: the schedule %q has %q at point %d of %d (%s): fail needs an outside "+
				"call, and others needs records with several keys", s, one.fault, one.point, len(points), at.what)
		}
	}
	return nil
}

// point is a moment at which a fault may happen.
type point struct {
	what string
	call bool // of the handler to something outside
}

// singles returns the schedules with one fault. Those with the shortest stories come first.
func singles(points []point, parts int) (all []schedule) {
	for _, f := range []fault{die, fail, others, copies, freeze} {
		for i, p := range points {
			if slices.Contains(faultsAt(p, parts), f) {
				all = append(all, schedule{{i + 1, f}})
			}
		}
	}
	return all
}

// faultsAt returns the faults that may happen at a point.
func faultsAt(p point, parts int) []fault {
	list := []fault{die, freeze, copies}
	if parts > 1 {
		list = append(list, others)
	}
	if p.call {
		list = append(list, fail)
	}
	return list
}

// single is a step, and the points of the run with this step only.
type single struct {
	step
	points []point
}

// pair returns a schedule with two faults: the one of a run with one fault, and one at a later
// point of that run. So both happen. pick returns a number below its argument. Nil: no run has such
// a point.
func pair(ran []single, parts int, pick func(int) int) schedule {
	ran = slices.DeleteFunc(slices.Clone(ran), func(s single) bool { return len(s.points) <= s.point })
	if len(ran) == 0 {
		return nil
	}
	first := ran[pick(len(ran))]
	second := first.point + pick(len(first.points)-first.point) // counted from 0
	f := faultsAt(first.points[second], parts)
	return schedule{first.step, {second + 1, f[pick(len(f))]}}
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
