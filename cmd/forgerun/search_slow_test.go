//go:build slow

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/examples/other-apis/apis"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/verdict/search"
)

const planted = "testdata/planted/"

// plantedClient is a client with mistakes. Each mistake appears only after at least two faults.
type plantedClient struct {
	flags, command []string
	mistakes       map[string]plantedMistake
}

type plantedMistake struct {
	faults int      // number of faults that expose the mistake
	rules  []string // the search must find that one of these rules is broken
}

func plantedClients(t *testing.T) map[string]plantedClient {
	t.Helper()
	for _, program := range []string{"python3", "node"} {
		if missing := missingProgram(program, "install it"); missing != "" {
			t.Skip(missing)
		}
	}
	program := clientStyles(t)["poll"][0]
	payouts := []string{"env", "FORGERUN_API_KEY=key", program, "payouts"}
	server := httptest.NewServer(apis.Handler())
	t.Cleanup(server.Close)
	twice := []string{"no-duplicates", "one-job-per-intention", "idempotency-key", "work-doubled"}
	fails := []string{"command-fails"}
	return map[string]plantedClient{
		"python": {nil, []string{"python3", planted + "client.py"}, map[string]plantedMistake{
			"fresh-key": {2, twice}, "caught-once": {2, fails}, "new-key-after-401": {2, twice}, "waits-once": {2, []string{"backoff"}},
		}},
		"python, results": {nil, []string{"python3", planted + "client.py", "result"}, map[string]plantedMistake{"half-result": {2, fails}}},
		"node": {[]string{"--target", server.URL}, []string{"node", planted + "client.mjs"}, map[string]plantedMistake{
			"submission-skipped": {2, []string{"work-lost"}}, "submitted-again": {2, twice}, "redirected-to-get": {2, fails},
			"polls-counted": {3, fails},
		}},
		"go, Stripe": {[]string{"--target", server.URL, "--api", "stripe"}, payouts, map[string]plantedMistake{
			"tries-shared": {3, fails}, "refusal-is-success": {2, []string{"work-lost", "outcome-learned", "lost-answer"}},
		}},
		"go, streams": {nil, []string{program, "job-stream"}, map[string]plantedMistake{
			"first-break-kept": {2, []string{"stream-resume"}}, "half-taken": {2, append(fails, "half-events")}, "breaks-counted": {3, fails},
		}},
	}
}

// The search finds each mistake with a plan that has at most one unnecessary fault.
func TestSearchFindsPlantedMistakes(t *testing.T) {
	for name, client := range plantedClients(t) {
		for mistake, m := range client.mistakes {
			for seed := 1; seed <= seeds(); seed++ {
				t.Run(fmt.Sprintf("%s/%s/%d", name, mistake, seed), func(t *testing.T) {
					code, report, stderr := client.search(t, mistake, "--budget", "3m", "--seed", fmt.Sprint(seed))
					require.Equal(t, 1, code, "%s", stderr)
					found := report.Findings[0]
					require.True(t, slices.ContainsFunc(found.Breaks, func(b search.Break) bool { return slices.Contains(m.rules, b.Rule) }),
						"%s: %+v", found.Words, found.Breaks)
					require.GreaterOrEqual(t, faultsOf(found), 2, found.Words)
					require.LessOrEqual(t, faultsOf(found), m.faults+1, found.Words)
				})
			}
		}
	}
}

// If the mistakes are switched off, the search finds nothing in these clients.
func TestSearchBlamesNoCorrectClient(t *testing.T) {
	for name, client := range plantedClients(t) {
		for seed := 1; seed <= seeds(); seed++ {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				code, report, stderr := client.search(t, "", "--budget", "90s", "--seed", fmt.Sprint(seed))
				require.Equal(t, 0, code, "%+v\n%s", report.Findings, stderr)
			})
		}
	}
}

func (c plantedClient) search(t *testing.T, mistake string, flags ...string) (code int, report search.Report, stderr string) {
	t.Helper()
	arguments := slices.Concat([]string{"search", "--first", "--workers", "8", "--json", "--out", t.TempDir()}, flags, c.flags,
		[]string{"--"}, c.command)
	run, said := exec.CommandContext(t.Context(), testkit.Program(t, "forgerun"), arguments...), &testkit.Output{}
	run.Env, run.Stderr = append(os.Environ(), "MISTAKE="+mistake), said
	stdout, err := run.Output()
	if exit := (&exec.ExitError{}); !errors.As(err, &exit) {
		require.NoError(t, err, said.String())
	}
	require.NoError(t, json.Unmarshal(stdout, &report), said.String())
	code = run.ProcessState.ExitCode()
	t.Logf("exit code %d, %d runs in %.0f s", code, report.Trials, report.Seconds)
	for _, f := range report.All() {
		t.Logf("%s: %s (%s)", f.Breaks[0].Rule, f.Words, f.Rate())
	}
	return code, report, said.String()
}

func faultsOf(f search.Finding) (n int) {
	for _, step := range f.Schedule {
		n += step.Times
	}
	return n
}
