package main

import "slices"

// A mutant is one planted fault.
type mutant struct {
	name string
	// file is the path from the root of the repository. old occurs exactly once there, and the
	// mutant replaces it by with.
	file, old, with string
	// promise is the sentence that is no longer true.
	promise string
	tests   owner
	// harmless is the reason why no test can find the fault. Empty: a test must find it.
	harmless string
}

// An owner is a choice of tests.
type owner struct {
	pkg string // a folder, from the root of the repository
	run string // the pattern of go test -run
	// needs names the services that the tests need.
	needs []string
}

// mutants returns all rows.
func mutants() []mutant {
	return slices.Concat(
		engineMutants(), laneMutants(), runnerMutants(), watermillMutants(), beginMutants(), guardMutants(), decisionMutants(),
		postgresMutants(), postgresTxMutants(), redisMutants(), sqlMutants(), sqlPostgresMutants(), mariaMutants(),
		dynamoMutants(), memoryMutants(),
		httpMutants(), outboxMutants(), identityMutants(), authMutants(),
		keyringMutants(), secondSecretMutants(),
		awayMutants(), sendMutants(), inOrderMutants(), waitMutants(), rateMutants(), spareMutants(), letterMutants(),
		codecMutants(), pageMutants(), commandMutants(),
	)
}
