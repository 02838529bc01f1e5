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
	// As "make bench-quick" does: the user's options come after its own.
	o, chosen, err = parse([]string{"-duration", "4s", "-rounds", "1", "-against", self, "-rounds", "5", "throughput", "idle"})
	require.NoError(t, err)
	require.Equal(t, options{duration: 4 * time.Second, rounds: 5, rows: 1_000_000, against: self}, o)
	require.Equal(t, []string{"throughput", "idle"}, names(chosen))

	for _, args := range [][]string{{"fast"}, {"-nonsense"}, {"-rounds", "0"}, {"-against", self + ".missing"}} {
		_, _, err := parse(args)
		require.Error(t, err, args)
	}
}

// A failing experiment does not stop the others.
func TestAllExperimentsRun(t *testing.T) {
	t.Parallel()
	broken := errors.New("no")
	got, err := runAll(t.Context(), &lab{}, []experiment{
		{name: "a", run: func(context.Context, *lab) ([][]string, error) { return nil, broken }},
		{name: "b", run: func(context.Context, *lab) ([][]string, error) { return [][]string{{"f"}}, nil }},
	})
	require.ErrorIs(t, err, broken)
	require.Len(t, got, 1)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err = runAll(ctx, &lab{}, []experiment{{name: "c"}})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, got)
}

// The order is reversed each round. Ratios are of the rounds, not of the medians. A side without a value has no line.
func TestComparisonInTurns(t *testing.T) {
	t.Parallel()
	order := ""
	measured := func(name string, rates ...float64) side {
		return side{name: name, measure: func(got sample) error {
			order += name + " "
			got["half"] = rates[0] / 2
			if name != "none" {
				got["rate"] = rates[0]
			}
			rates = rates[1:]
			return nil
		}}
	}
	sides := []side{measured("ours", 10, 40, 3000), measured("none", 2, 2, 2), measured("theirs", 20, 40, 1000)}
	list, err := compare(3, sides, "rate", "nothing")
	require.NoError(t, err)
	require.Equal(t, "ours none theirs theirs none ours ours none theirs ", order)
	alone, err := compare(1, []side{measured("ours", 40)}, "half")
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, writeTable(&b, append(list, alone...)))
	require.Equal(t, `| figure | measured | compared with | ratio        |
| ---    | ---      | ---           | ---          |
| rate   | 40       | 40 (theirs)   | 1 (0.5 to 3) |
| half   | 20       |               |              |
`, b.String())

	broken := errors.New("no")
	_, err = compare(1, []side{{name: "b", measure: func(sample) error { return broken }}})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "b: ")
	for v, text := range map[float64]string{0.03456: "0.0346", 7: "7", 99.96: "100", 123.4: "123", 12345.6: "12346"} {
		require.Equal(t, text, number(v))
	}
	require.Equal(t, 2.5, quantile([]float64{4, 1, 3, 2}, 0.5))
	require.Equal(t, 4.0, quantile([]float64{4, 1, 3, 2}, 1))
}

// The output of the peers' program is read phase by phase.
func TestPeersOutput(t *testing.T) {
	t.Parallel()
	got := sample{}
	require.NoError(t, got.readPeer([]byte(`{"phase":"insert","jobs":20000,"took":4,"cpu":1}
{"phase":"drain","jobs":20000,"took":2,"cpu":1}
`), 9))
	require.NoError(t, got.readPeer([]byte(`{"phase":"batch","jobs":20000,"took":1,"cpu":1}`), 9))
	require.NoError(t, got.readPeer([]byte(`{"phase":"sustained","jobs":20000,"took":8,"cpu":3}`), 2))
	require.Equal(t, sample{acceptedFigure: 5000, drainFigure: 10_000, batchFigure: 20_000, sustainedFigure: 2500, cpuFigure: 0.25}, got)
	require.Error(t, got.readPeer([]byte("panic"), 0))
}

// The CPU time of a process includes that of its children, also ended ones.
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
