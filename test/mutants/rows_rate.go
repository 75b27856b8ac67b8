package main

// rateMutants are faults of the rate limit of a handler.
func rateMutants() []mutant {
	const file = "internal/throttle/turns.go"
	tests := func(run string) owner { return ownedBy("internal/throttle", run) }
	return []mutant{
		{
			name: "rate-older-turn-comes-back", file: file,
			old: "turn == t.newest && now.Before(t.free)", with: "now.Before(t.free)",
			promise: "The rate is never exceeded: a turn before a later one does not come back.",
			tests:   tests("^TestLimits_OlderTurnGivenBack$"),
		},
		{
			name: "rate-turn-is-lost", file: file,
			old: "turn == t.newest && now.Before(t.free)", with: "false",
			promise: "A duplicate costs no interval of its handler.",
			tests:   tests("^TestLimits_DuplicatesCostNoTurn$"),
		},
		{
			name: "rate-turn-wakes-no-lane", file: file,
			old: "\t\tt.free = now\n\t\tt.wakeFirst()\n", with: "\t\tt.free = now\n",
			promise: "A turn that comes back goes to the lane that waits the longest.",
			tests:   tests("^TestLimits_DuplicatesCostNoTurn$"),
		},
		{
			name: "rate-place-is-not-handed-on", file: file,
			old: "\tif place == 0 {\n\t\tt.wakeFirst()\n\t}\n", with: "",
			promise: "A lane that stops waiting holds no other lane up.",
			tests:   tests("^TestLimits_StoppedLaneHandsItsPlaceOn$"),
		},
		{
			name: "rate-try-overtakes", file: file,
			old: "len(t.queue) > 0 || now.Before(t.free)", with: "now.Before(t.free)",
			promise: "Turns follow the order of the calls.",
			tests:   tests("^TestLimits_(FirstComeFirstServed|FreeTurnIsTheFirstLanes)$"),
		},
		{
			name: "rate-lane-overtakes", file: file,
			old: "if place > 0 || now.Before(t.free) {", with: "if now.Before(t.free) {",
			promise: "Turns follow the order of the calls.",
			tests:   tests("^TestLimits_FreeTurnIsTheFirstLanes$"),
		},
		{
			name: "rate-burst-after-a-pause", file: file,
			old: "if earliest := now.Add(-late); free.Before(earliest) {", with: "if earliest := now.Add(-late); false {",
			promise: "A pause of the process brings no burst of runs.",
			tests:   tests("^TestAfter$"),
		},
	}
}
