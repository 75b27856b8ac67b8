package main

import (
	"errors"
	"fmt"
)

// errDryRun ends a dry run, where the verb would ask before its change.
var errDryRun = errors.New("dry run: nothing was changed")

// dryRunView is the result of a dry run that has printed no other.
type dryRunView struct {
	DryRun bool   `json:"dry_run"`
	Would  string `json:"would"`
}

// showDryRun prints the question that is not asked. The error is errDryRun, or that of the output.
func (a *app) showDryRun(question string) error {
	question = a.redact(question)
	if a.output == outputs[0] || a.shown { // the rows of the verb are the JSON then
		fmt.Fprintf(a.stderr, "%s\n%s\n", plainLines(question), errDryRun)
		return errDryRun
	}
	if err := a.show(dryRunView{true, question}, nil, nil); err != nil {
		return err
	}
	return errDryRun
}
