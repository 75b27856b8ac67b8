package storetest

// randomTests try sequences that no written case has. A failure prints the seed; IDEM_SEED
// repeats the run.
var randomTests = []testCase{
	{name: "random: thousands of calls agree with a model", alone: true, run: randomModel},
	{name: "random: workers that race and crash never overlap and lose nothing", alone: true,
		run: randomRace},
}
