package main

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/deadletters"
)

// dlq runs a verb of the command against the store of w.
func (w *deadLetterWorld) dlq(typed string, args ...string) ran {
	w.t.Helper()
	_, known := memory()
	known[inMemory].store = w.store
	return commandWith(w.t, known, typed, append([]string{"dlq"}, append(args, "--brokers", strings.Join(w.brokers, ","),
		"-G", w.group, "--topic", w.topic, "--store", inMemory)...)...)
}

// fileOf writes a text into a new file.
func fileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// An export goes to standard output or to a new file of its owner, bounded, and with an audit line.
func TestExportCommand(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.events("e", 5)...)
	r := w.dlq("", "export")
	lines, err := deadletters.ReadExported(strings.NewReader(r.ok(t)))
	require.NoError(t, err)
	require.Len(t, lines, 5)
	require.EqualValues(t, 5, r.audits(t)[0]["dead_letters"])

	path := filepath.Join(t.TempDir(), "out.jsonl")
	r = w.dlq("", "export", "--limit", "2", "--out", path)
	require.Empty(t, r.ok(t))
	require.Contains(t, r.stderr, "other dead letters match")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(before, []byte("\n")))
	w.dlq("", "export", "--out", path).failed(t, exitFound, "exists")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after, "no file is overwritten")

	w.dlq("", "export", "--limit", "0").failed(t, exitUsage, "--limit")
	r = w.dlq("", "export", "--id", "e3")
	require.Equal(t, 1, strings.Count(r.ok(t), "\n"))
}

// A value from a file or from an editor takes the place of the bad one, and the event runs once.
func TestEditCommand(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("a", `,"amount":"x"`), w.event("b", `,"amount":"y"`))
	places := map[string]string{}
	for _, row := range w.verdicts(deadletters.Filter{}, deadletters.Decisions{}) {
		places[row.ID] = row.Record
	}
	good := `{"event_id":"a","type":"paid","amount":7}`
	value := fileOf(t, good)
	w.dlq("", "edit").failed(t, exitUsage, "which dead letter")
	w.dlq("", "edit", "0/0", "--out", "edited.jsonl", "--dry-run").failed(t, exitUsage, "writes no file")
	w.dlq("", "edit", "0/99", "--value-file", value).failed(t, exitFound, "no record")
	w.dlq("", "edit", places["b"], "--value-file", value, "-y").failed(t, exitFound, `event ID "a" instead of "b"`)
	notJSON := w.dlq("", "edit", places["a"], "--value-file", fileOf(t, "{"), "-y")
	notJSON.failed(t, exitFound, "was JSON")
	line := notJSON.audits(t)[0]
	require.Len(t, notJSON.audits(t), 1)
	require.Equal(t, "dlq edit", line["audit"])
	require.Equal(t, "refused", line["outcome"])
	require.Equal(t, string(deadletters.SeenEdit), line["verdict"])
	require.Contains(t, line["note"], "was JSON")
	require.Equal(t, places["a"], line["record"])
	require.Equal(t, "a", line["event_id"])
	require.Equal(t, deadletter.ValueHash([]byte(`{"event_id":"a","type":"paid","amount":"x"}`)), line["sha256_before"])
	require.Equal(t, deadletter.ValueHash([]byte("{")), line["sha256_after"])
	require.Empty(t, w.dlq("", "edit", places["a"], "--value-file", fileOf(t, "{"), "--dry-run").audits(t))
	require.Empty(t, w.copies())

	refused := w.dlq("n\n", "edit", places["a"], "--value-file", value)
	refused.failed(t, exitFound, "edited value", places["a"]+" a: sha256 ")
	require.Equal(t, "refused", refused.audits(t)[0]["outcome"])
	require.Empty(t, w.copies())

	done := w.dlq("", "edit", places["a"], "--value-file", value, "-y")
	done.ok(t)
	audits := done.audits(t)
	require.Len(t, audits, 2)
	require.Equal(t, "dlq edit", audits[0]["audit"])
	require.Equal(t, "done", audits[0]["outcome"])
	require.Equal(t, "a", audits[0]["event_id"])
	require.Equal(t, deadletter.ValueHash([]byte(good)), audits[0]["sha256_after"])
	require.Equal(t, deadletter.ValueHash([]byte(`{"event_id":"a","type":"paid","amount":"x"}`)), audits[0]["sha256_before"])
	require.Equal(t, "dlq replay", audits[1]["audit"])
	require.Equal(t, good, string(w.copies()[0].Value))

	t.Run("editor", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		t.Setenv("VISUAL", "")
		t.Setenv("EDITOR", "")
		w.dlq("", "edit", places["b"], "-y").failed(t, exitUsage, "EDITOR")
		t.Setenv("EDITOR", "true")
		w.dlq("", "edit", places["b"], "-y").failed(t, exitFound, "no value was changed")
		t.Setenv("EDITOR", "false")
		w.dlq("", "edit", places["b"], "-y").failed(t, exitFailure, "editor false")
		left, err := os.ReadDir(os.Getenv("TMPDIR"))
		require.NoError(t, err)
		require.Empty(t, left)
		t.Setenv("EDITOR", `sed -i s/}//`) // a mistake: the text is kept
		r := w.dlq("", "edit", places["b"], "-y")
		r.failed(t, exitFound, "was JSON", "value.json")
		left, err = os.ReadDir(os.Getenv("TMPDIR"))
		require.NoError(t, err)
		require.Len(t, left, 1)
		require.NoError(t, os.RemoveAll(filepath.Join(os.Getenv("TMPDIR"), left[0].Name())))

		t.Setenv("EDITOR", `sed -i -e 's/"y"/8/' -e '$a\'`) // ends the last line, as editors do
		w.dlq("", "edit", places["b"], "-y").ok(t)
		copies := w.copies()
		require.Len(t, copies, 2)
		values := string(copies[0].Value) + string(copies[1].Value)
		require.Contains(t, values, `{"event_id":"b","type":"paid","amount":8}`)
		require.NotContains(t, values, "\n")
		left, err = os.ReadDir(os.Getenv("TMPDIR"))
		require.NoError(t, err)
		require.Empty(t, left)
	})

	var ran applied
	w.handle(ran.run, append(w.copies(), w.copies()...)...)
	require.Equal(t, map[string]int{"a": 1, "b": 1}, ran.runs)
	again := w.dlq("", "edit", places["a"], "--value-file", value, "-y", "-o", "json")
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDone: 1},
		decodeJSON[deadletters.Result](t, strings.NewReader(again.ok(t))).Verdicts)
	require.Equal(t, "refused", again.audits(t)[0]["outcome"])
	require.Len(t, w.copies(), 2)
}

// The text of a person is kept, and named, until it is in Kafka or in another file.
func TestEditKeepsTheText(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("a", `,"amount":"x"`))
	var at string
	for place := range w.verdicts(deadletters.Filter{}, deadletters.Decisions{}) {
		at = place
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("VISUAL", `sed -i -e 's/"x"/7/' -e '$a\'`)
	kept := func(r ran) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(tmp, "idem-edit-*", "value.json"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		require.Contains(t, r.stderr, "the edited value of "+at+" is kept in "+files[0])
		edited := `{"event_id":"a","type":"paid","amount":7}`
		require.Equal(t, edited, read(t, files[0]), "without the line feed of the editor")
		require.NoError(t, os.RemoveAll(filepath.Dir(files[0])))
	}
	no := w.dlq("n\n", "edit", at)
	no.failed(t, exitFound, "not confirmed")
	kept(no)
	exists := w.dlq("", "edit", at, "--out", fileOf(t, ""))
	exists.failed(t, exitFound, "exists")
	kept(exists)
	dry := w.dlq("", "edit", at, "--dry-run")
	dry.ok(t)
	kept(dry)
	require.Empty(t, w.copies())

	w.dlq("", "edit", at, "--out", filepath.Join(t.TempDir(), "edited")).ok(t)
	w.dlq("", "edit", at, "-y").ok(t)
	require.Len(t, w.copies(), 1)
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
	var ran applied
	w.handle(ran.run, w.copies()...)
	done := w.dlq("", "edit", at, "-y") // left alone: the event was handled
	done.ok(t)
	kept(done)
}

// A dead letter may vanish while a person edits it. The text is kept, and the audit log has the edit.
func TestEditKeepsTheTextOfAVanishedDeadLetter(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("a", ""))
	var lines []deadletters.Exported
	_, err := w.open().List(t.Context(), deadletters.Filter{}, func(l *deadletters.Found) (bool, error) {
		lines = append(lines, l.Export())
		return true, nil
	})
	require.NoError(t, err)
	lines[0].Value.Text = `{"event_id":"a","type":"paid","amount":7}`
	at, err := lines[0].Place()
	require.NoError(t, err)
	admin, err := sarama.NewClusterAdminFromClient(w.client)
	require.NoError(t, err)
	require.NoError(t, admin.DeleteRecords("orders.g.dlq", map[int32]int64{at.Partition: at.Offset + 1}))
	s := w.open()
	require.NoError(t, s.replay(t.Context(), w.producer, deadletters.Filter{At: placesOf(lines)}, replayFlags{lines: lines}))
	require.True(t, s.leftAlone)
	line := auditLines(t, s.err.String())[0]
	require.Equal(t, "dlq edit", line["audit"])
	require.Equal(t, "refused", line["outcome"])
	require.Equal(t, string(deadletters.SeenGone), line["verdict"])
	require.Equal(t, lines[0].Record, line["record"])
	require.Equal(t, lines[0].SHA256, line["sha256_before"])
	require.Equal(t, deadletter.ValueHash([]byte(lines[0].Value.Text)), line["sha256_after"])
}

// Only a replay of the edited value makes the text of the person superfluous.
func TestEditLeftAlone(t *testing.T) {
	edit := &deadletters.Edit{Before: "1", After: "2"}
	for name, c := range map[string]struct {
		done deadletters.Done
		want bool
	}{
		"replayed":              {deadletters.Done{Edit: edit, Replayed: true}, false},
		"refused":               {deadletters.Done{Edit: edit}, true},
		"failed":                {deadletters.Done{Edit: edit, Replayed: true, Err: errBroken}, true},
		"refused, no hashes":    {deadletters.Done{}, true},
		"failed, no hashes":     {deadletters.Done{Err: errBroken}, true},
		"the dead letter as is": {deadletters.Done{Replayed: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := &app{stderr: io.Discard}
			d := &deadLetters{Queue: &deadletters.Queue{}, app: a}
			d.auditEdit(c.done, a.progress("dead letters", 1))
			require.Equal(t, c.want, d.leftAlone)
		})
	}
}

// An editor may save a text and then end with an error, as one that is killed. The text is kept and
// named. Without a change there is nothing to keep.
func TestEditKeepsTheTextOfAFailedEditor(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("a", `,"amount":"x"`))
	var at string
	for place := range w.verdicts(deadletters.Filter{}, deadletters.Decisions{}) {
		at = place
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	for editor, kept := range map[string]bool{
		`sh -c 'sed -i s/.x./7/ "$1"; exit 1' x`:         true,
		`sh -c 'sed -i "s/.x./7/;\$a\\" "$1"; exit 1' x`: true, // ends the last line
		`sh -c 'sed -i "\$a\\" "$1"; exit 1' x`:          false,
		`sh -c 'exit 1' x`:                               false,
	} {
		t.Setenv("VISUAL", editor)
		r := w.dlq("", "edit", at, "-y")
		r.failed(t, exitFailure, "editor sh -c")
		files, err := filepath.Glob(filepath.Join(tmp, "idem-edit-*", "value.json"))
		require.NoError(t, err)
		if !kept {
			require.Empty(t, files, editor)
			continue
		}
		require.Len(t, files, 1, editor)
		require.Contains(t, r.stderr, "the edited value of "+at+" is kept in "+files[0])
		edited := `{"event_id":"a","type":"paid","amount":7}`
		require.Equal(t, edited, read(t, files[0]), "without the line feed of the editor")
		require.NoError(t, os.RemoveAll(filepath.Dir(files[0])))
	}
	require.Empty(t, w.copies())
}

// An export is edited by a program or a person, checked by another one, and replayed.
func TestReplayFromFile(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("a", `,"amount":"x"`), w.event("b", ""))
	dir := t.TempDir()
	exported, edited := filepath.Join(dir, "exported"), filepath.Join(dir, "edited")
	w.dlq("", "export", "--out", exported).ok(t)
	t.Setenv("VISUAL", `sed -i 's/"x"/7/'`)
	r := w.dlq("", "edit", "--from", exported, "--out", edited)
	require.Empty(t, r.ok(t))
	require.Contains(t, r.stderr, "unchanged")
	require.Empty(t, w.copies())
	require.Len(t, r.audits(t)[0]["edits"], 1)

	w.dlq("", "replay", "--from", edited, "--id", "a").failed(t, exitUsage, "not both")
	w.dlq("", "replay", "--from", filepath.Join(dir, "none")).failed(t, exitUsage, "--from")
	w.dlq("", "replay", "--from", fileOf(t, "{}")).failed(t, exitUsage, "not an exported file")
	r = w.dlq("", "replay", "--from", edited, "-y", "-o", "json")
	require.Equal(t, 1, decodeJSON[deadletters.Result](t, strings.NewReader(r.ok(t))).Replayed)
	require.Equal(t, "dlq edit", r.audits(t)[0]["audit"])
	require.Contains(t, string(w.copies()[0].Value), `"amount":7`)

	r = w.dlq("", "replay", "--from", exported, "-y", "-o", "json")
	got := decodeJSON[deadletters.Result](t, strings.NewReader(r.ok(t)))
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDead: 1, deadletters.SeenReopened: 1}, got.Verdicts)
	var ran applied
	w.handle(ran.run, w.copies()...)
	require.Equal(t, map[string]int{"a": 1, "b": 1}, ran.runs)

	text, err := os.ReadFile(exported)
	require.NoError(t, err)
	forged := fileOf(t, strings.ReplaceAll(string(text), `"group":"g"`, `"group":"h"`))
	r = w.dlq("", "replay", "--from", forged, "-y", "-o", "json")
	got = decodeJSON[deadletters.Result](t, strings.NewReader(r.ok(t)))
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenChanged: 2}, got.Verdicts)
	require.Len(t, w.copies(), 3)
}

// A process that dies between the store and Kafka leaves an edited event open for the same edit.
func TestReplayFromFile_Repeatable(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("a", ""))
	var lines []deadletters.Exported
	s := w.open()
	_, err := s.List(t.Context(), deadletters.Filter{}, func(l *deadletters.Found) (bool, error) {
		lines = append(lines, l.Export())
		return true, nil
	})
	require.NoError(t, err)
	lines[0].Value.Text = `{"event_id":"a","type":"paid","amount":7}`
	f := deadletters.Filter{At: placesOf(lines)}
	for _, sent := range []bool{false, true} {
		s = w.open()
		p := &failingProducer{Producer: w.producer, sent: sent}
		require.ErrorContains(t, s.replay(context.Background(), p, f, replayFlags{lines: lines}), "connection lost")
		require.Contains(t, s.err.String(), `"audit":"dlq edit"`)
		require.Contains(t, s.err.String(), `"outcome":"failed"`)
	}
	s = w.open()
	require.NoError(t, s.replay(t.Context(), w.producer, f, replayFlags{lines: lines}))
	require.Equal(t, map[string][]string{"a": {"1", "1"}}, w.copiesByID())
	var ran applied
	w.handle(ran.run, w.copies()...)
	require.Equal(t, map[string]int{"a": 1}, ran.runs)
}

// In Postgres too, an edited event runs once, and its original record is a duplicate afterwards: no
// conflict, although the content differs.
func TestEditOnPostgres(t *testing.T) {
	onPostgres(t, func(t *testing.T, s *pgstore.Store, url string) {
		w := newDeadLetterWorld(t)
		w.store = s
		original := w.event("a", `,"amount":"x"`)
		w.fail(original)
		var at string
		for place := range w.verdicts(deadletters.Filter{}, deadletters.Decisions{}) {
			at = place
		}
		value := fileOf(t, `{"event_id":"a","type":"paid","amount":7}`)
		edit := func() ran {
			return command(t, "dlq", "edit", at, "--value-file", value, "-y", "-o", "json", "--brokers", strings.Join(w.brokers, ","),
				"-G", "g", "--topic", "orders", "--store", url)
		}
		edit().ok(t)
		edit().ok(t)
		require.Len(t, w.copies(), 2)
		var ran applied
		w.handle(ran.run, append(w.copies(), original, w.copies()[0])...)
		require.Equal(t, map[string]int{"a": 1}, ran.runs)
		require.Len(t, w.deadLetters(), 1)
		require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDone: 1},
			decodeJSON[deadletters.Result](t, strings.NewReader(edit().ok(t))).Verdicts)
	})
}
