package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/simulator/trial"
)

// built is the real program, built once, and its folder.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func realForgerun(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "forgerun-simulator-test-"); built.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", built.dir, "github.com/forgerun/forgerun/cmd/forgerun").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	require.NoError(t, built.err)
	return filepath.Join(built.dir, "forgerun")
}

func removeBinary() {
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
}

// TestRunSoakUnderFaults is the whole thing: a mixed load of several tenants,
// workers that come and go, and faults of each kind on everything, after which
// every promise must have been kept. The seed makes requests and faults the same
// each time.
func TestRunSoakUnderFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes two minutes")
	}
	// Not beside other tests: what it proves depends on how much is done in its time.
	out := t.TempDir()
	code, stdout, stderr := simulate(t, "run", "soak", "--duration", "60s", "--seed", "7", "--workers", "1..3",
		"--chaos", "kill=8s,stop=15s,term=20s,flush=20s,redis=30s,redis-pause=30s,redis-full=40s,postgres=40s,cut=2s,lose=3s,slow=10s,stall=20s",
		"--forgerun", realForgerun(t), "--out", out)
	require.Equal(t, exitOK, code, "%s\n%s", stdout, stderr)
	require.Contains(t, stdout, "no violation")

	var told struct {
		Outcome string
		Totals  struct {
			Faults   int
			Finished map[string]int
		}
		FaultKinds []struct{ Kind string } `json:"fault_kinds"`
	}
	content, err := os.ReadFile(filepath.Join(out, "report.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &told))
	require.Equal(t, "PASSED", told.Outcome)
	require.Greater(t, told.Totals.Faults, 100)
	require.Greater(t, len(told.FaultKinds), 8, "faults of nearly all kinds")
	require.Greater(t, told.Totals.Finished["SUCCEEDED"], 1000)
	t.Logf("%s", stdout)

	junit, err := os.ReadFile(filepath.Join(out, "junit.xml"))
	require.NoError(t, err)
	var suite struct {
		Cases []struct{} `xml:"testsuite>testcase"`
	}
	require.NoError(t, xml.Unmarshal(junit, &suite))
	require.NotEmpty(t, suite.Cases)
	require.NoDirExists(t, filepath.Join(out, "history"), "it was not needed")
}

// TestRunSoakWithAClockThatJumps is the same for a service whose clock jumps, stands still and runs at other rates, beside faults of
// other kinds: nothing starts before its time, and what has become due has ended.
func TestRunSoakWithAClockThatJumps(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	// Not beside other tests, as above.
	out := t.TempDir()
	code, stdout, stderr := simulate(t, "run", "moved-clock", "--seed", "7",
		"--chaos", "clock=700ms,kill=6s,flush=10s,cut=2s,lose=3s", "--forgerun", realForgerun(t), "--out", out)
	require.Equal(t, exitOK, code, "%s\n%s", stdout, stderr)
	require.Contains(t, stdout, "no violation")

	var told struct {
		Totals struct{ Finished map[string]int }
		Faults []struct{ Kind, Target string }
	}
	content, err := os.ReadFile(filepath.Join(out, "report.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &told))
	require.Greater(t, told.Totals.Finished["SUCCEEDED"], 50)
	moves := map[string]int{}
	for _, f := range told.Faults {
		if f.Kind == "clock" {
			what, _, _ := strings.Cut(strings.TrimPrefix(f.Target, "clock, "), " ")
			moves[what]++
		}
	}
	require.Len(t, moves, 3, "it jumped, stood still and ran at another rate: %v", moves)
	t.Logf("%s", stdout)
}

// newTrial is a run against a real service of its own, to be played step by step.
func newTrial(t *testing.T, text string) (tr *trial.Trial, out string) {
	t.Helper()
	s, err := scenario.Parse("trial.yaml", []byte(text))
	require.NoError(t, err)
	out = t.TempDir()
	tr = trial.New(trial.Options{
		Binary: realForgerun(t), Out: out, Lease: 3 * time.Second, Sample: 1000, ReceiverAddr: "127.0.0.1:0",
		Scenario: s, Stdout: io.Discard, Stderr: io.Discard,
	})
	t.Cleanup(func() {
		require.NoError(t, tr.Close())
		require.NoError(t, os.RemoveAll(tr.Dir()))
	})
	return tr, out
}

const smallLoad = `
jobs: 40
arrival: {closed: {clients: 8}}
mix: [{kind: SUCCESS_FAST}]
receivers: [{name: hook, events: ["job.*"], answers: [{status: 204}]}]
service: {workers: "1", concurrency: 20, time_scale: 0.01}
`

// A judge that never goes red proves nothing, and what goes red must be what was
// spoilt.
func TestTheJudgeSeesWhatIsSpoiltInARealService(t *testing.T) {
	t.Parallel()
	const victim = "(SELECT min(job_id::text)::uuid FROM jobs)"
	tr, out := newTrial(t, smallLoad)
	require.NoError(t, tr.Prepare(t.Context()))
	require.NoError(t, tr.Drive(t.Context()))
	db, err := pgx.Connect(t.Context(), tr.DatabaseURL())
	require.NoError(t, err)
	for _, sql := range []string{
		"DELETE FROM jobs WHERE job_id = (SELECT max(job_id::text)::uuid FROM jobs)", // an accepted job is lost
		"UPDATE events SET occurred_at = occurred_at - interval '1 hour' WHERE seq = 3 AND job_id = " + victim,
		"DELETE FROM deliveries WHERE job_id = " + victim + " AND event_name = 'job.running'",
	} {
		_, err := db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.NoError(t, db.Close(t.Context()))
	verdict, err := tr.Judge(t.Context())
	require.NoError(t, err)
	broken := map[string]bool{}
	for _, v := range verdict.Violations {
		broken[v.Invariant] = true
		var text bytes.Buffer
		v.Write(&text)
		require.Contains(t, text.String(), v.What)
	}
	for _, key := range []string{"accepted", "log", "delivery"} {
		require.True(t, broken[key], "%s: %v", key, verdict.Violations)
	}
	account := tr.Summarize(tr.Numbers(), verdict)
	require.NoError(t, tr.Write(account))
	require.DirExists(t, filepath.Join(out, "history"), "it is kept where something was wrong")
	require.FileExists(t, filepath.Join(out, "logs", "api-1.log"))
}

const crashingLoad = `
duration: 10s
drain: 5s
arrival: {open: [{rate: 40/s}]}
mix: [{kind: SUCCESS_FAST}]
chaos: postgres=2s
service: {workers: "1", concurrency: 20, time_scale: 0.01}
`

// A Postgres that loses commits loses accepted jobs when it crashes: whatever
// else holds, the judge must say so.
func TestTheJudgeSeesAPostgresThatLosesCommits(t *testing.T) {
	t.Parallel()
	tr, _ := newTrial(t, crashingLoad)
	require.NoError(t, tr.Prepare(t.Context()))
	db, err := pgx.Connect(t.Context(), tr.DatabaseURL())
	require.NoError(t, err)
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()", "CHECKPOINT"} {
		_, err := db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	// Commits stay in memory while the WAL writer stands still; the crash ends it,
	// as it ends all of them.
	var walWriter int
	require.NoError(t, db.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&walWriter))
	require.NoError(t, syscall.Kill(walWriter, syscall.SIGSTOP))
	require.NoError(t, db.Close(t.Context()))
	require.NoError(t, tr.Drive(t.Context()))
	verdict, err := tr.Judge(t.Context())
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(verdict.Violations, func(v judge.Violation) bool { return v.Invariant == "accepted" }),
		"the check goes red: %d violations, not checked: %v", verdict.ViolationCount, verdict.Skipped)
}

func TestRunBadUse(t *testing.T) {
	t.Parallel()
	foreign := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(foreign.Close)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"status":401,"code":"RFA_AUTH_INVALID_CREDENTIALS","detail":"The API key is not valid."}`)
	}))
	t.Cleanup(refusing.Close)
	usable := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"client_id":"c","api_key":"k","key_id":"i"}`)
	}))
	t.Cleanup(usable.Close)
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("jobs: 5\narrival: {open: [{rate: 5/s}]}\nmix:\n  - kind: SUCCES_FAST\n"), 0o600))
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"no scenario":      {nil, []string{"name a scenario", "steady"}},
		"unknown scenario": {[]string{"stedy"}, []string{"stedy", "steady"}},
		"mistake in file":  {[]string{bad}, []string{"bad.yaml:4:11", "SUCCES_FAST", "SUCCESS_FAST"}},
		"service away":     {[]string{"steady", "--url", "http://127.0.0.1:1"}, []string{"nothing answers at http://127.0.0.1:1", "--url"}},
		"another service":  {[]string{"steady", "--url", foreign.URL}, []string{"not as ForgeRun does", "--url"}},
		"wrong key":        {[]string{"steady", "--url", refusing.URL, "--key", "frk_wrong"}, []string{"refuses the key"}},
		"unknown fault":    {[]string{"steady", "--chaos", "kil=3s"}, []string{"kil", "kill"}},
		"bad workers":      {[]string{"steady", "--workers", "many"}, []string{"many", "1..8"}},
		"no binary":        {[]string{"steady", "--forgerun", "/nonexistent"}, []string{"/nonexistent", "--forgerun"}},
		"faults elsewhere": {[]string{"steady", "--url", "http://127.0.0.1:1", "--chaos", "kill=3s"},
			[]string{"--chaos breaks only what the simulator started"}},
		"workers of whom": {[]string{"steady", "--url", "http://127.0.0.1:1", "--workers", "2"}, []string{"--database-url"}},
		"key of whom":     {[]string{"steady", "--key", "frk_x"}, []string{"--url"}},
		"no database": {[]string{"steady", "--url", usable.URL, "--database-url", "postgres://u:secret@127.0.0.1:1/d"},
			[]string{"the database cannot be read"}},
		"no redis": {[]string{"steady", "--url", usable.URL, "--redis-url", "redis://127.0.0.1:1"},
			[]string{"the Redis server does not answer"}},
		"short lease": {[]string{"steady", "--lease", "10ms"}, []string{"--lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := simulate(t, append(append([]string{"run"}, c.args...), "--out", filepath.Join(t.TempDir(), "out"))...)
			if c.args == nil {
				code, stdout, stderr = simulate(t, "run")
			}
			require.Equal(t, exitUnusable, code, stderr)
			require.Empty(t, stdout)
			for _, want := range c.want {
				require.Contains(t, stderr, want)
			}
			require.NotContains(t, stderr, "secret")
			require.LessOrEqual(t, strings.Count(stderr, "\n"), 2, stderr)
		})
	}
}

func TestTheReportShowsNoSecret(t *testing.T) {
	t.Parallel()
	line := commandLine([]string{"steady", "--key", "frk_a", "--key=frk_b", "-key", "frk_c", "--database-url", "postgres://u:p@h/d",
		"--redis-url=redis://:p@h", "--seed", "3"})
	require.Equal(t, "simulator run steady --key ... --key=... -key ... --database-url ... --redis-url=... --seed 3", line)
}

func TestScenariosAreListedAndPrinted(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := simulate(t, "scenarios")
	require.Equal(t, exitOK, code, stderr)
	for _, name := range []string{
		"tour", "steady", "burst", "cancel-storm", "retry-limits", "duplicate-storm", "scheduled-wave", "schedules",
		"webhook-chaos", "tenants", "slow-consumers", "soak", "overload", "moved-clock",
	} {
		require.Contains(t, stdout, name+" ")
	}
	code, stdout, _ = simulate(t, "scenarios", "steady")
	require.Equal(t, exitOK, code)
	_, err := scenario.Parse("steady.yaml", []byte(stdout))
	require.NoError(t, err)
	code, stdout, _ = simulate(t, "scenarios", "--schema")
	require.Equal(t, exitOK, code)
	require.True(t, json.Valid([]byte(stdout)))
	code, _, stderr = simulate(t, "scenarios", "nothing")
	require.Equal(t, exitUnusable, code)
	require.Contains(t, stderr, "nothing")
}
