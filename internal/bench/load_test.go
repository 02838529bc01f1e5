package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestScheduleIsEven(t *testing.T) {
	t.Parallel()
	require.Zero(t, due(0, 2500))
	require.Equal(t, 400*time.Microsecond, due(1, 2500))
	require.Equal(t, time.Second, due(2500, 2500))
	require.Equal(t, time.Hour, due(3600*3000, 3000), "no error adds up")
}

// Latency counts from when a request was due: one that had to wait for a
// connection is slow although its answer was quick.
func TestLatencyCountsFromWhenARequestWasDue(t *testing.T) {
	t.Parallel()
	const slow = 50 * time.Millisecond
	got := pace(t.Context(), pacing{rate: 100, during: 50 * time.Millisecond, connections: 1, patience: time.Minute}, func() func() int {
		return func() int { time.Sleep(slow); return 202 }
	})
	require.Equal(t, 5, got.answers(202))
	require.GreaterOrEqual(t, quantile(got.fromDue[202], 100), 5*slow-40*time.Millisecond, "the last one was due after 40 ms")
	require.Less(t, quantile(got.fromSent[202], 50), 4*slow)
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	h := newHistogram()
	for i := range 100 {
		record(h, time.Duration(i+1)*time.Millisecond)
	}
	require.InEpsilon(t, 50*time.Millisecond, quantile(h, 50), 0.01)
	require.InEpsilon(t, 99*time.Millisecond, quantile(h, 99), 0.01)
	record(h, time.Hour)
	record(h, -time.Second)
	require.EqualValues(t, 102, h.TotalCount(), "what is out of range is counted too")
	require.InEpsilon(t, time.Minute, quantile(h, 100), 0.01)
	require.Equal(t, time.Microsecond, quantile(h, 0))
}

func TestMediansAndRatios(t *testing.T) {
	t.Parallel()
	require.Zero(t, median(nil))
	require.Equal(t, 3.0, median([]float64{9, 1, 3}))
	require.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
	require.Equal(t, []float64{2, 3}, ratios([]float64{4, 9}, []float64{2, 3}))
}

func TestGateKeepsTheBacklogBounded(t *testing.T) {
	t.Parallel()
	g := newGate(2)
	entered := make(chan struct{})
	go func() {
		for range 5 {
			_ = g.enter(t.Context())
			entered <- struct{}{}
		}
	}()
	within := func(want bool) {
		t.Helper()
		select {
		case <-entered:
			require.True(t, want, "one too many")
		case <-time.After(map[bool]time.Duration{true: 10 * time.Second, false: 50 * time.Millisecond}[want]):
			require.False(t, want, "nobody gets in")
		}
	}
	within(true)
	within(true)
	within(false)
	g.update(1)
	within(true)
	within(false)
	g.unlock()
	within(true)
	within(true)

	var open *gate
	require.NoError(t, open.enter(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, open.enter(ended), context.Canceled)
}

func TestSharesOfTheCores(t *testing.T) {
	t.Parallel()
	before := usage{at: time.Unix(100, 0), api: 1, machine: 10}
	after := usage{at: time.Unix(110, 0), api: 5, worker: 2, postgres: 6, redis: 1, generator: 1, machine: 27, stolen: 1}
	u := after.since(before)
	require.InEpsilon(t, 13.0, u.service(), 1e-9)
	require.Equal(t, "CPU of 2 cores: api 20 %, worker 10 %, Postgres 30 %, Redis 5 %, generator 5 %, others 15 %, taken by the host 5 %, idle 10 %", u.shares(2))
	require.InEpsilon(t, 90.0, u.coreShare(), 1e-9)
	require.Equal(t, "CPU unknown", usage{}.shares(2))
}

// The tree of a process has what its children needed, ended ones too.
func TestCPUOfAProcessTree(t *testing.T) {
	t.Parallel()
	shell := exec.Command("sh", "-c", `sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; echo done; read x`)
	in, err := shell.StdinPipe()
	require.NoError(t, err)
	out, err := shell.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	_, err = fmt.Fscanln(out, new(string))
	require.NoError(t, err)
	spent := readProcesses().tree(shell.Process.Pid)
	require.NoError(t, in.Close())
	_ = shell.Wait() // "read" ends with an error
	if busy, _ := machineCPU(); busy == 0 {
		t.Skip("there is no /proc here")
	}
	require.Greater(t, spent, 0.02)
	require.Zero(t, processes{}.tree(0))
}

func TestPgbench(t *testing.T) {
	t.Parallel()
	rate, err := pgbenchRate("latency average = 3.1 ms\ninitial connection time = 60 ms\ntps = 20512.345678 (without initial connection time)\n")
	require.NoError(t, err)
	require.InEpsilon(t, 20512.345678, rate, 1e-9)
	_, err = pgbenchRate("pgbench: error")
	require.Error(t, err)

	script, err := pgbenchScript(uuid.New())
	require.NoError(t, err)
	require.NotRegexp(t, `[^:]:[A-Za-z0-9_]`, script, "pgbench would take it for a variable")
	require.Contains(t, script, `"work_kind": "PAYLOAD_SMALL"`)
	require.NotContains(t, script, "%!", "all is filled in")
	require.Equal(t, 1, strings.Count(script, ";"), "one statement is one transaction")
}

func TestThroughputFigures(t *testing.T) {
	t.Parallel()
	one := func(accepted int, finished, cpu float64) sample {
		return sample{accepted: load{accepted: accepted, took: time.Second, latency: newHistogram()},
			path: path{finished: finished, jobs: 1000, usage: usage{api: cpu}}}
	}
	real := []sample{one(7000, 500, 0.3), one(14000, 600, 0.4), one(100, 700, 0.5)}
	naive := []sample{one(1000, 100, 2), one(1000, 100, 2), one(1000, 100, 2)}
	var measured []float64
	for _, f := range throughputFigures(real, naive, []float64{7000, 7000, 100}) {
		measured = append(measured, f.Measured)
	}
	require.InDeltaSlice(t, []float64{7, 1, 6, 0.4, 0.2}, measured, 1e-9)
}
