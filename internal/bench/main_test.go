package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

func TestCommandLine(t *testing.T) {
	t.Parallel()
	names := func(list []experiment) (names []string) {
		for _, e := range list {
			names = append(names, e.name)
		}
		return names
	}
	o, chosen, err := parse(nil)
	require.NoError(t, err)
	require.Equal(t, names(all), names(chosen))
	require.Equal(t, 3, o.rounds)

	self, err := os.Executable()
	require.NoError(t, err)
	// "make bench-quick" puts the user's options last, so that they override its own.
	o, chosen, err = parse([]string{"-duration", "4s", "-rounds", "1", "-against", self, "-rounds", "5", "throughput", "idle"})
	require.NoError(t, err)
	require.Equal(t, options{duration: 4 * time.Second, rounds: 5, rows: 1_000_000, against: self}, o)
	require.Equal(t, []string{"throughput", "idle"}, names(chosen))

	for _, args := range [][]string{{"fast"}, {"-nonsense"}, {"-rounds", "0"}, {"-against", self + ".missing"}} {
		_, _, err := parse(args)
		require.Error(t, err, args)
	}
}

// A failing experiment stops its own processes but not the other experiments.
func TestAllExperimentsRun(t *testing.T) {
	t.Parallel()
	broken, ended := errors.New("no"), ""
	l := &lab{ctx: t.Context()}
	err := l.runAll([]experiment{
		{name: "a", run: func(l *lab) {
			l.atEnd(func() error { ended += "first"; return nil })
			l.atEnd(func() error { ended += "second "; return nil })
			check(broken)
		}},
		{name: "b", run: func(l *lab) { l.lines = [][]string{{"f"}} }},
	})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "a: ")
	require.Equal(t, "second first", ended)
	require.Empty(t, l.ends)
	require.Len(t, l.lines, 1)
	require.Panics(t, func() { _ = l.attempt(func() { panic("a bug") }) })

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, (&lab{ctx: ctx}).runAll([]experiment{{name: "c"}}), context.Canceled)
}

// The order is reversed each round. Ratios are computed per round, not from medians. A side without a value has no line.
func TestComparisonInTurns(t *testing.T) {
	t.Parallel()
	order := ""
	measured := func(name string, rates ...float64) side {
		return side{name: name, measure: func(got sample) {
			order += name + " "
			got["half"] = rates[0] / 2
			if name != "none" {
				got["rate"] = rates[0]
			}
			rates = rates[1:]
		}}
	}
	l := &lab{options: options{rounds: 3}}
	l.compare([]side{measured("ours", 10, 40, 3000), measured("none", 2, 2, 2), measured("theirs", 20, 40, 1000)}, "rate", "nothing")
	require.Equal(t, "ours none theirs theirs none ours ours none theirs ", order)
	l.rounds = 1
	l.compare([]side{measured("ours", 40)}, "half")
	var b strings.Builder
	require.NoError(t, writeTable(&b, l.lines))
	require.Equal(t, `| figure | measured | compared with | ratio        |
| ---    | ---      | ---           | ---          |
| rate   | 40       | 40 (theirs)   | 1 (0.5 to 3) |
| half   | 20       |               |              |
`, b.String())
	require.ErrorContains(t, l.attempt(func() {
		l.compare([]side{{name: "b", measure: func(sample) { check(errors.New("no")) }}})
	}), "b: no")
	for v, text := range map[float64]string{0.03456: "0.0346", 7: "7", 99.96: "100", 123.4: "123", 12345.6: "12346"} {
		require.Equal(t, text, number(v))
	}
	require.Equal(t, 2.5, quantile([]float64{4, 1, 3, 2}, 0.5))
	require.Equal(t, 4.0, quantile([]float64{4, 1, 3, 2}, 1))
}

// readPeer reads the output of the program phase by phase.
func TestPeersOutput(t *testing.T) {
	t.Parallel()
	got := sample{}
	require.NoError(t, got.readPeer(strings.NewReader(`{"phase":"insert","jobs":20000,"took":4}
{"phase":"drain","jobs":20000,"took":2}
`), 9))
	require.NoError(t, got.readPeer(strings.NewReader(`{"phase":"batch","jobs":20000,"took":1}`), 9))
	require.NoError(t, got.readPeer(strings.NewReader(`{"phase":"sustained","jobs":20000,"took":8}`), 5))
	require.Equal(t, sample{acceptedFigure: 5000, drainFigure: 10_000, batchFigure: 20_000, sustainedFigure: 2500, cpuFigure: 0.25}, got)
	require.Error(t, got.readPeer(strings.NewReader("panic"), 0))
}

// The CPU time of a process includes the time of its children, even after they ended.
func TestCPUOfAProcessTree(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc here")
	}
	shell := exec.Command("sh", "-c", `sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; echo done; read x`)
	in, err := shell.StdinPipe()
	require.NoError(t, err)
	out, err := shell.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	_, err = out.Read(make([]byte, 5))
	require.NoError(t, err)
	require.Greater(t, readProcesses().tree(shell.Process.Pid), 0.02)
	require.NoError(t, in.Close())
	_ = shell.Wait() // "read" ends with an error
	require.Zero(t, processes{}.tree(0))
}
