package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"unicode/utf8"

	"github.com/idem-go/idem/internal/deadletters"
)

// newValue returns the new value of a dead letter: that of a file, or that of a person with an
// editor. kept is the file of the editor, also with an error, if the person may have saved a text.
func (a *app) newValue(
	ctx context.Context, before []byte, valueFile string,
) (after []byte, kept string, err error) {
	if valueFile != "" {
		after, err = readValue(valueFile)
		return after, "", err
	}
	if !utf8.Valid(before) {
		return nil, "", usage("the value is not UTF-8: give --value-file")
	}
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"))
	if editor == "" {
		return nil, "", usage("no editor: set EDITOR, or give --value-file")
	}
	if kept, err = writeEdited(before); err != nil {
		return nil, "", err
	}
	// The editor is a command with arguments, as for git.
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "idem", kept)
	cmd.Stdout, cmd.Stderr = a.stderr, a.stderr
	if f, ok := a.stderr.(*os.File); ok {
		cmd.Stdout, cmd.Stderr = f, f
	}
	if f, ok := a.stdin.(*os.File); ok {
		cmd.Stdin = f
	}
	failed := cmd.Run()
	after, err = savedValue(kept, before)
	if failed == nil {
		return after, kept, err
	}
	failed = fmt.Errorf("editor %s: %w", editor, failed)
	if err == nil && bytes.Equal(after, before) {
		return nil, "", errors.Join(failed, removeEdited(kept))
	}
	return nil, kept, failed // the person may have saved a text before
}

// savedValue reads the file of the editor. A line feed at the end that before has not is removed,
// also from the file: most editors end the last line.
func savedValue(path string, before []byte) ([]byte, error) {
	saved, err := readValue(path)
	if err != nil || bytes.HasSuffix(before, []byte("\n")) {
		return saved, err
	}
	after := bytes.TrimSuffix(saved, []byte("\n"))
	if len(after) < len(saved) {
		err = os.WriteFile(path, after, 0o600)
	}
	return after, err
}

// writeEdited writes a value to a file in a directory of its own. Only the user may read both.
func writeEdited(value []byte) (path string, err error) {
	dir, err := os.MkdirTemp("", "idem-edit-")
	if err != nil {
		return "", err
	}
	name := "value.txt"
	if json.Valid(value) {
		name = "value.json" // editors choose their mode by the name
	}
	path = filepath.Join(dir, name)
	return path, os.WriteFile(path, value, 0o600)
}

// removeEdited removes the file of the editor, and copies that the editor has left beside it.
func removeEdited(path string) error {
	if path == "" {
		return nil
	}
	return os.RemoveAll(filepath.Dir(path))
}

// keptTexts are the files of the editor with values that a person has changed. They are kept until
// the values are in Kafka or in another file.
type keptTexts []keptText

type keptText struct {
	at   deadletters.Place
	path string
}

// add adds a file. An empty path is none.
func (k *keptTexts) add(at deadletters.Place, path string) {
	if path != "" {
		*k = append(*k, keptText{at, path})
	}
}

// remove removes all files.
func (k keptTexts) remove() (err error) {
	for _, t := range k {
		err = errors.Join(err, removeEdited(t.path))
	}
	return err
}

// nameKept tells the person where the edited values are.
func (a *app) nameKept(texts keptTexts) {
	for _, t := range texts {
		a.note("the edited value of %s is kept in %s: repeat the command with --value-file, "+
			"or remove the file", t.at, t.path)
	}
}

// readValue reads a value of at most [deadletters.MaxExportBytes].
func readValue(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usage("%w", err)
	}
	defer f.Close() // only read
	value, err := io.ReadAll(io.LimitReader(f, deadletters.MaxExportBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(value) > deadletters.MaxExportBytes:
		return nil, usage("%s has more than %d MiB", path, deadletters.MaxExportBytes>>20)
	}
	return value, nil
}
