package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeProc writes a /proc with a machine's line and the lines of its processes.
func fakeProc(t *testing.T, machine string, processes map[int]string) procfs {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(machine), 0o600))
	for pid, line := range processes {
		sub := filepath.Join(dir, fmt.Sprint(pid))
		require.NoError(t, os.Mkdir(sub, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(sub, "stat"), []byte(line), 0o600))
	}
	return procfs(dir)
}

// statLine is a /proc/<pid>/stat. The times are user, system, and both of ended children.
func statLine(name string, parent, user, system, childUser, childSystem int) string {
	return fmt.Sprintf("1 (%s) S %d 0 0 0 0 0 0 0 0 0 %d %d %d %d 20 0 1",
		name, parent, user, system, childUser, childSystem)
}

func TestLoadIsThatOfOtherProcesses(t *testing.T) {
	before := fakeProc(t, "cpu 0 0 0 0 0 0 0 0 0 0\n", map[int]string{
		10: statLine("bench", 1, 0, 0, 0, 0),
	}).usage([]int{10})
	after := fakeProc(t, "cpu 40 0 10 30 10 0 0 10 99 99\n", map[int]string{ // 100 ticks, 60 busy
		2:  statLine("kthreadd", 0, 1, 0, 0, 0),
		9:  statLine("kworker", 2, 0, 4, 0, 0),
		10: statLine("bench", 1, 10, 5, 5, 5),
		11: statLine("a child) (x", 10, 4, 1, 0, 0),
		12: statLine("other", 1, 20, 0, 0, 0),
	}).usage([]int{10})
	require.Equal(t, time.Second, after.all)
	require.Equal(t, 600*time.Millisecond, after.busy)
	require.Equal(t, 350*time.Millisecond, after.own)
	got := before.until(after)
	require.True(t, got.known)
	require.InDelta(t, 25, got.percent, 1e-9)
	require.False(t, usage{}.until(after).known)
	require.False(t, fakeProc(t, "cpu x\n", nil).usage([]int{10}).known)
	require.False(t, before.until(before).known, "no time has gone by")
}

func TestDisturbedRowIsRepeatedAtMostTwice(t *testing.T) {
	busy, quiet := load{percent: 10.1, known: true}, load{percent: 10, known: true}
	require.True(t, busy.repeats(0, true))
	require.True(t, busy.repeats(1, true))
	require.False(t, busy.repeats(2, true))
	require.False(t, busy.repeats(0, false), "the time is up")
	require.False(t, quiet.repeats(0, true))
	require.False(t, load{percent: 50}.repeats(0, true), "unknown")
}

func TestProcessOfAServerIsFoundByItsPort(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	s := server{name: "nothing"}
	require.NoError(t, s.at(listener.Addr().String()))
	require.Equal(t, []int{os.Getpid()}, proc.processesOf(s, proc.processes()))
	require.NoError(t, listener.Close())
	_, err = proc.ownProcesses([]server{s})
	require.ErrorContains(t, err, "no process is seen behind nothing")
	s.host = "192.0.2.1"
	roots, err := proc.ownProcesses([]server{s})
	require.NoError(t, err, "a server elsewhere takes nothing of this machine")
	require.Equal(t, []int{os.Getpid()}, roots)
}

func TestPlanBoundsTheTime(t *testing.T) {
	whole := newPlan(&options{})
	require.True(t, whole.begins(0, time.Hour, 0), "the first round always begins")
	require.True(t, whole.begins(1, 5*time.Minute, 6*time.Minute))
	require.False(t, whole.begins(1, 6*time.Minute, 6*time.Minute))
	require.False(t, whole.begins(3, 0, 0))
	require.True(t, whole.runs("idem-ontx", 1))
	require.True(t, whole.runs("naive-postgres", 1), "a ratio needs its base")
	require.True(t, whole.runs("broker-limit", 0))
	require.False(t, whole.runs("broker-limit", 1), "no wanted ratio needs the row")
	require.True(t, whole.runs("kafkago-ontx", 0))
	require.False(t, whole.runs("kafkago-ontx", 1), "its ratio is measured in the first round")
	require.True(t, whole.runs("franz-redis-on", 1), "its other ratio needs every round")

	for _, o := range []options{{names: "broker-limit"}, {rounds: 5}} {
		p := newPlan(&o)
		require.True(t, p.begins(2, time.Hour, time.Hour))
		require.True(t, p.runs("broker-limit", 1))
	}
	require.True(t, newPlan(&options{large: true}).begins(2, time.Hour, time.Hour))
	quick := newPlan(&options{quick: true})
	require.False(t, quick.begins(1, 0, 0))
	require.False(t, quick.timeLeft(3*time.Minute))
}

func TestTableIsWatchedOnlyIfChosen(t *testing.T) {
	require.Zero(t, (&options{}).sizeWatch())
	require.Equal(t, 10*time.Minute, (&options{names: "delay,size"}).sizeWatch())
	require.Equal(t, time.Hour, (&options{names: "size", sizeTakes: time.Hour}).sizeWatch())
}

func TestRatioComparesTheSameRound(t *testing.T) {
	r := results{"a": {{all: 10}, {all: 30, round: 2}}, "b": {{all: 10}, {all: 1, round: 1}, {all: 10, round: 2}}}
	v, ok := r.ratioOf("a", "b", 0)
	require.True(t, ok)
	require.InDelta(t, 2, v, 1e-9, "of 1 and 3")
	_, ok = results{"a": {{all: 1}}, "b": {{all: 1, round: 1}}}.ratioOf("a", "b", 0)
	require.False(t, ok)
}
