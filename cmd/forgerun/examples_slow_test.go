//go:build slow

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/search"
)

type example struct {
	right, naive []string
	missing      string

	profile fault.Profile // profile that exposes the mistakes of the naive client
	seed    int
	broken  []string
}

func exampleClients(t *testing.T) map[string]example {
	t.Helper()
	dir := t.TempDir()
	program := func(path ...string) string { return filepath.Join(append([]string{examples}, path...)...) }
	runIn(t, ".", nil, "go", "build", "-o", dir, "./"+program("go", "client"), "./"+program("go", "naive"))
	requireNodePackages(t, documentTools)
	runIn(t, documentTools, nil, "node", "node_modules/typescript/bin/tsc", "--strict", "--target", "es2022",
		"--lib", "es2022,dom,dom.iterable",
		"--module", "commonjs", "--outDir", dir, "../../examples/typescript/client.ts", "../../examples/typescript/naive.ts")
	return map[string]example{
		"go": {
			right: []string{filepath.Join(dir, "client")}, naive: []string{filepath.Join(dir, "naive")},
			profile: fault.DuplicateDeliveries, seed: 7,
			broken: []string{
				"tampered-refused", "repeated-delivery", "deliveries-answered", "retry-after", "conditional-requests", "correlation-ids",
				"connection-reuse",
			},
		},
		"typescript": {
			right: []string{"node", filepath.Join(dir, "client.js")}, naive: []string{"node", filepath.Join(dir, "naive.js")},
			profile: fault.FlakyNetwork, seed: 7,
			broken: []string{"idempotency-key", "no-duplicates", "one-job-per-intention", "stream-resume", "retry-after", "conditional-requests"},
		},
		"python": {
			right: []string{"python3", program("python", "client.py")}, naive: []string{"python3", program("python", "naive.py")},
			missing: missingProgram("python3", "install Python 3"), profile: fault.Overloaded, seed: 2,
			broken: []string{
				"retry-after", "conditional-requests", "backoff", "idempotency-key", "connection-reuse", "stop-at-end", "no-key-in-url",
			},
		},
		"sh": {
			right: []string{"sh", program("sh", "client.sh")}, naive: []string{"sh", program("sh", "naive.sh")},
			missing: missingProgram("curl", "install curl"), seed: 1,
			broken: []string{
				"no-key-in-url", "content-negotiation", "not-retryable", "outcome-learned", "same-body",
			},
		},
	}
}

func seeds() int {
	n, err := strconv.Atoi(os.Getenv("FORGERUN_TESTBED_SEEDS"))
	if err != nil {
		return 1
	}
	return n
}

// parallelIfMany keeps subtests sequential if there is only one seed. A parallel subtest may wait long for its turn, while its idle
// processes use CPU.
func parallelIfMany(t *testing.T) {
	t.Helper()
	if seeds() > 1 {
		t.Parallel()
	}
}

func TestExampleClientsAreRight(t *testing.T) {
	s, api, _ := newDelivering(t, withTestbed)
	for language, e := range exampleClients(t) {
		for _, profile := range fault.Profiles {
			for seed := 1; seed <= seeds(); seed++ {
				t.Run(fmt.Sprintf("%s/%s/%d", language, profile, seed), func(t *testing.T) {
					parallelIfMany(t)
					if e.missing != "" {
						t.Skip(e.missing)
					}
					output, _, broken, err := s.runJudged(t, api, e.right, profile, seed)
					requireEnded(t, profile, output, err)
					require.Empty(t, broken, output)
				})
			}
		}
	}
}

// The comment at the top of each naive client lists its mistakes. The verdict finds exactly these mistakes.
func TestExampleMistakesAreNamed(t *testing.T) {
	s, api, _ := newDelivering(t, withTestbed, slowJobs)
	sources := map[string]string{
		"go": "go/naive/main.go", "typescript": "typescript/naive.ts", "python": "python/naive.py", "sh": "sh/naive.sh",
	}
	for language, e := range exampleClients(t) {
		t.Run(language, func(t *testing.T) {
			source := readText(t, filepath.Join(examples, sources[language]))
			head, _, _ := strings.Cut(source, "import")
			for _, rule := range e.broken {
				require.Contains(t, head, rule)
			}
			if e.missing != "" {
				t.Skip(e.missing)
			}
			output, _, broken, _ := s.runJudged(t, api, e.naive, e.profile, e.seed)
			require.ElementsMatch(t, e.broken, slices.Collect(maps.Keys(broken)), "%s\n%+v", output, broken)
		})
	}
}

func TestTutorialOfTheTestBed(t *testing.T) {
	if missing := missingProgram("python3", "install Python 3"); missing != "" {
		t.Skip(missing)
	}
	page := readText(t, "../../docs/tutorials/testbed.md")
	s := newStack(t, withTestbed, slowJobs)
	api := s.startLeader()
	s.startWorker()
	for name, want := range map[string][]string{
		"orders.py":       {"retry-after", "conditional-requests", "backoff", "connection-reuse", "correlation-ids"},
		"orders_fixed.py": nil,
	} {
		program := filepath.Join(examples, "tutorial", name)
		source := readText(t, program)
		require.Contains(t, page, "```python\n"+source+"```")
		output, _, broken, err := s.runJudged(t, api, []string{"python3", program}, fault.Overloaded, 2)
		require.NoError(t, err, output)
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(broken)), output)
	}
}

func TestTutorialOfTheSearch(t *testing.T) {
	if missing := missingProgram("python3", "install Python 3"); missing != "" {
		t.Skip(missing)
	}
	program := filepath.Join(examples, "tutorial", "orders_again.py")
	require.Contains(t, readText(t, "../../docs/tutorials/search.md"), "```python\n"+readText(t, program)+"```")
	s := newStack(t, withTestbed)
	api := s.startLeader()
	s.startWorker()
	var report search.Report
	output, err := exec.CommandContext(t.Context(), testkit.Program(t, "forgerun"), "search", "--url", api.url, "--first", "--json",
		"--workers", "8", "--budget", "20m", "--out", t.TempDir(), "--", "python3", program).Output()
	require.ErrorContains(t, err, "exit status 1", "%s", output)
	require.NoError(t, json.Unmarshal(output, &report))
	require.Len(t, report.Findings, 1)
	require.Equal(t, "no-duplicates", report.Findings[0].Breaks[0].Rule)
	require.Equal(t, "1st submission and its repetition: response lost after processing", report.Findings[0].Words)
}

// With slowJobs, clients must poll a job more than once.
var slowJobs = env{"FORGERUN_TIME_SCALE": "3"}
