package main

import (
	"errors"
	"fmt"
)

// errDryRun ends the change of a dry run, where the verb would ask. The verb then shows the result
// of the change that it did not make.
var errDryRun = errors.New("dry run: nothing was changed")

// dryRunView is the part of a result that marks a dry run. The other fields are those of a change.
type dryRunView struct {
	DryRun bool `json:"dry_run,omitempty"`
}

// unlessDryRun returns err, but nil for the end of a dry run.
func unlessDryRun(err error) error {
	if err == errDryRun { //nolint:errorlint // joined with another error it is no success
		return nil
	}
	return err
}

// showDryRun prints the question that is not asked.
func (a *app) showDryRun(question string) error {
	fmt.Fprintln(a.stderr, plainLines(a.redact(question)))
	return errDryRun
}
