package main

// waitMutants are faults of the pauses of a start, and of the log lines of a problem that lasts.
func waitMutants() []mutant {
	const wait = "internal/setupwait/"
	tests := func(run string) owner { return ownedBy("internal/setupwait", run) }
	return []mutant{
		{
			name: "problem-begins-in-silence", file: wait + "problem.go",
			old: "\tif !first && now.Sub(p.logged) < RepeatEvery {", with: "\tif first || now.Sub(p.logged) < RepeatEvery {",
			promise: "The first error of a problem is logged.",
			tests:   tests("^TestProblem$"),
		},
		{
			name: "problem-is-logged-once", file: wait + "problem.go",
			old: "\tif !first && now.Sub(p.logged) < RepeatEvery {", with: "\tif !first {",
			promise: "A problem that lasts is logged each minute.",
			tests:   tests("^TestProblem$"),
		},
		{
			name: "problem-each-error-is-logged", file: wait + "problem.go",
			old: "\tif !first && now.Sub(p.logged) < RepeatEvery {", with: "\tif false {",
			promise: "A problem is logged once a minute at most.",
			tests:   tests("^TestProblem$"),
		},
		{
			name: "problem-a-minute-and-more", file: wait + "problem.go",
			old: "now.Sub(p.logged) < RepeatEvery", with: "now.Sub(p.logged) <= RepeatEvery",
			promise: "An error a minute after the last line is logged.",
			tests:   tests("^TestProblem$"),
		},
		{
			name: "problem-minutes-from-its-begin", file: wait + "problem.go",
			old: "\tp.logged = now\n\ttext", with: "\tif first {\n\t\tp.logged = now\n\t}\n\ttext",
			promise: "Lines of a problem are a minute apart.",
			tests:   tests("^TestProblem$"),
		},
		{
			name: "problem-outlives-the-quiet", file: wait + "problem.go",
			old: "p.Since.IsZero() || again && now.Sub(p.heard) > quietFor", with: "p.Since.IsZero() || again && now.Before(p.heard)",
			promise: "After five minutes without an error, the next one begins a problem.",
			tests:   tests("^TestProblem$"),
		},
		{
			name: "problem-ends-at-five-minutes", file: wait + "problem.go",
			old: "now.Sub(p.heard) > quietFor", with: "now.Sub(p.heard) >= quietFor",
			promise: "Errors five minutes apart are one problem.",
			tests:   tests("^TestProblem$"),
		},
		{
			name: "problem-quiet-before-its-first-error", file: wait + "problem.go",
			old: "|| again && now.Sub", with: "|| (!again || again) && now.Sub",
			promise: "A problem is as old as its begin, also before its first error.",
			tests:   tests("^TestProblem$"),
		},
		{
			name: "problem-is-never-over", file: wait + "problem.go",
			old: "\tp.Since, p.logged, p.heard = time.Time{}, time.Time{}, time.Time{}\n", with: "",
			promise: "After its end, the next error begins a problem.",
			tests:   tests("^TestProblem$"),
		},
		{
			name: "problem-ends-unlogged", file: wait + "problem.go",
			old: "\treturn lasted, true\n", with: "\treturn lasted, false\n",
			promise: "The end of a problem that was logged is reported.",
			tests:   tests("^TestProblem$"),
		},
		{
			name: "pause-outlasts-the-wait", file: wait + "setupwait.go",
			old: ", most, wait-waited), true", with: ", most), true",
			promise: "No pause is longer than the rest of the wait.",
			tests:   tests("^TestPause$"),
		},
		{
			name: "pause-without-bound", file: wait + "setupwait.go",
			old: ", most, wait-waited), true", with: ", wait-waited), true",
			promise: "A table that another process creates is found within 5 s.",
			tests:   tests("^TestPause$"),
		},
		{
			name: "pause-of-no-time", file: wait + "setupwait.go",
			old: "max(waited, least)", with: "waited",
			promise: "A wait does not ask without a pause.",
			tests:   tests("^TestPause$"),
		},
		{
			name: "wait-without-end", file: wait + "setupwait.go",
			old: "if waited >= wait {", with: "if waited == wait {",
			promise: "A start gives up at the end of its wait.",
			tests:   tests("^TestPause$"),
		},
	}
}
