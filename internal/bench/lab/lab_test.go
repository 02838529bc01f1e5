package lab

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSharesOfTheCores(t *testing.T) {
	t.Parallel()
	before := Usage{At: time.Unix(100, 0), API: 1, Machine: 10}
	after := Usage{At: time.Unix(110, 0), API: 5, Worker: 2, Postgres: 6, Redis: 1, Generator: 1, Machine: 27, Stolen: 1}
	u := after.Since(before)
	require.InEpsilon(t, 13.0, u.Service(), 1e-9)
	require.Equal(t, "CPU of 2 cores: api 20 %, worker 10 %, Postgres 30 %, Redis 5 %, generator 5 %, "+
		"others 15 %, taken by the host 5 %, idle 10 %", u.shares(2))
	require.InEpsilon(t, 90.0, u.CoreShare(), 1e-9)
	require.Equal(t, "CPU unknown", Usage{}.shares(2))
	require.InEpsilon(t, 6.5, Path{Jobs: 2000, Usage: u}.CPU(), 1e-9)
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
	used := readProcesses().tree(shell.Process.Pid)
	require.NoError(t, in.Close())
	_ = shell.Wait() // "read" ends with an error
	if busy, _ := machineCPU(); busy == 0 {
		t.Skip("there is no /proc here")
	}
	require.Greater(t, used, 0.02)
	require.Zero(t, processes{}.tree(0))
}
