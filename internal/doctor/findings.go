package doctor

// Verdict is the result of a check.
type Verdict string

const (
	// OK means that the requirement is met.
	OK Verdict = "ok"
	// Warn means that events are lost, doubled or stopped under the circumstances in the detail.
	Warn Verdict = "warn"
	// Bad means that events are lost, doubled or stopped now, or that a service cannot be reached.
	Bad Verdict = "bad"
	// Unknown means that the check could not be made. It counts as a warning (rule 46).
	Unknown Verdict = "unknown"
	// Skipped means that the check does not apply.
	Skipped Verdict = "skipped"
)

// Finding is the result of one check for one topic, store or group.
type Finding struct {
	// ID names the check. Scripts may rely on an ID: no release changes one.
	ID string `json:"id"`
	// On is the topic, store or group. Empty: the settings of the workers.
	On string `json:"on"`
	// Title is the requirement.
	Title string `json:"title"`
	// Verdict is the result.
	Verdict Verdict `json:"verdict"`
	// Detail is the state that was found. It may quote a server, but never a password.
	Detail string `json:"detail"`
	// Remedy is a command or a setting. Empty: no remedy is known or needed.
	Remedy string `json:"remedy,omitempty"`
}

// Findings are in the order of the checks, which is always the same.
type Findings []Finding

// Count returns the number of findings with one of the verdicts.
func (r Findings) Count(verdicts ...Verdict) (n int) {
	for _, f := range r {
		for _, v := range verdicts {
			if f.Verdict == v {
				n++
			}
		}
	}
	return n
}

// Verdict returns the verdict of all findings: Bad if one is Bad, Warn if one is Warn or Unknown,
// and otherwise OK.
func (r Findings) Verdict() Verdict {
	switch {
	case r.Count(Bad) > 0:
		return Bad
	case r.Count(Warn, Unknown) > 0:
		return Warn
	}
	return OK
}

// say adds a finding.
func (r *Findings) say(v Verdict, id, on, detail, remedy string) {
	*r = append(*r, Finding{
		ID: id, On: on, Title: titles[id], Verdict: v, Detail: detail, Remedy: remedy,
	})
}

// choose adds the first choice that applies, or OK with fine.
func (r *Findings) choose(id, on, fine string, cases ...choice) {
	for _, c := range cases {
		if c.when {
			r.say(c.verdict, id, on, c.detail, c.remedy)
			return
		}
	}
	r.say(OK, id, on, fine, "")
}

// choice is a possible finding of a check.
type choice struct {
	when           bool
	verdict        Verdict
	detail, remedy string
}
