package summary

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

type statuses map[[2]string]verdict.Status

func sessionsOf(b *Baseline, all statuses) *Summary {
	s := &Summary{Baseline: b}
	for at, status := range all {
		s.Add("", judged(fault.Profile(at[0]), at[1], status, skipped, 1))
	}
	return s
}

func baseline(t *testing.T, text string) *Baseline {
	t.Helper()
	path := filepath.Join(t.TempDir(), "baseline.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	b, err := ReadBaseline(path, false)
	require.NoError(t, err)
	return b
}

func TestBaseline(t *testing.T) {
	t.Parallel()
	const known = "# mine\nknown:\n  - {profile: overloaded, test: test_a, rule: backoff}\n"
	for name, c := range map[string]struct {
		statuses statuses
		verdict  verdict.Conclusion
		failed   bool
		stale    int
	}{
		"known":                {statuses{{"overloaded", "test_a"}: broken}, verdict.Warned, false, 0},
		"new in a test":        {statuses{{"overloaded", "test_a"}: broken, {"overloaded", "b"}: broken}, verdict.Failed, true, 0},
		"new in a profile":     {statuses{{"overloaded", "test_a"}: broken, {"failover", "test_a"}: broken}, verdict.Failed, true, 0},
		"stale":                {statuses{{"overloaded", "test_a"}: held}, verdict.Passed, true, 1},
		"not tested":           {statuses{{"overloaded", "test_a"}: skipped}, verdict.Passed, false, 0},
		"the test did not run": {statuses{{"overloaded", "b"}: held}, verdict.Passed, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sessionsOf(baseline(t, known), c.statuses)
			require.Equal(t, c.verdict, s.Verdict())
			require.Len(t, s.Stale(), c.stale)
			require.Equal(t, c.failed, s.Failed())
			if c.stale > 0 {
				require.Contains(t, text(t, s), "baseline.yaml:3: backoff under overloaded in test_a is no longer broken: delete this line.\n")
			}
		})
	}
}

func TestBaselineOfSeveralSeeds(t *testing.T) {
	t.Parallel()
	s := &Summary{Baseline: baseline(t, `known: [{profile: overloaded, rule: backoff}]`)}
	s.Add("", judged("overloaded", "", held, skipped, 1))
	s.Add("", judged("overloaded", "", broken, skipped, 1))
	require.False(t, s.Failed())
	require.Contains(t, text(t, s), "\n  known   backoff: Wait.\n")
}

func TestUpdateBaseline(t *testing.T) {
	t.Parallel()
	b := baseline(t, `known:
  - {profile: overloaded, rule: backoff}
  - {profile: failover, rule: retry-budget}
  - {profile: failover, rule: backoff}
  - {profile: failover, rule: command}
`)
	s := &Summary{Baseline: b, Policy: Policy{Strict: true}}
	s.Add("", judged("overloaded", "", held, skipped, 1))
	s.Add("", judged("failover", "", skipped, broken, 1))
	s.Add("", judged("failover", `a "b": {c}`, broken, skipped, 1))
	s.AddRun("failover", false, false)
	s.AddRun("overloaded", true, false)
	s.AddRun("flaky-network", true, true)
	require.True(t, s.CommandFailed())
	require.NoError(t, s.UpdateBaseline())
	require.False(t, s.Failed())
	require.False(t, s.CommandFailed())
	written, err := os.ReadFile(b.Path)
	require.NoError(t, err)
	require.Equal(t, `# Rules that this client is known to break (forgerun verdict --baseline).
# When the client keeps a rule again, delete its line.
known:
  - {profile: "failover", rule: backoff}
  - {profile: "failover", rule: retry-budget}
  - {profile: "failover", rule: time-outs}
  - {profile: "failover", test: "a \"b\": {c}", rule: backoff}
  - {profile: "overloaded", rule: command}
`, string(written))
	again, err := ReadBaseline(b.Path, false)
	require.NoError(t, err)
	require.True(t, again.has("failover", `a "b": {c}`, "backoff"))
}

func TestBaselineRefusals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"known:\n  - {profile: overloaded, rule: back-off}": `baseline.yaml:2: unknown rule "back-off"`,
		"known:\n  - {rule: backoff}":                       "baseline.yaml:2: profile is missing",
		"known:\n  - {profile: x, rule: backoff, label: a}": `unknown member "label"`,
		"knwon: []": "knwon",
		"- a":       "line 1: unexpected list",
	} {
		path := filepath.Join(t.TempDir(), "baseline.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := ReadBaseline(path, false)
		require.ErrorContains(t, err, want)
	}
	_, err := ReadBaseline(filepath.Join(t.TempDir(), "none"), false)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestMarkdownAndAnnotations(t *testing.T) {
	t.Parallel()
	s := &Summary{Policy: Policy{Require: []string{"time-outs"}}, Notes: []string{hostile}}
	v := judged("overloaded", "a|b", broken, skipped, 1)
	v.Results[0].Evidence[0].Found = "```\n::error::x\n" + hostile
	s.Add("", v)
	var summary, log bytes.Buffer
	require.NoError(t, s.Markdown(&summary))
	require.NoError(t, s.Annotations(&log))
	require.Contains(t, summary.String(), "## ForgeRun: FAILED: 1 error\n")
	require.Contains(t, summary.String(), "| FAIL | `backoff` | The client waits. | overloaded, seed 7, a\\|b |\n")
	parts := strings.Split(summary.String(), "\n````")
	require.Len(t, parts, 3, "the fence is longer than any in the text")
	require.NotContains(t, parts[0]+parts[2], "<script>")
	require.NotContains(t, summary.String(), "\x1b")
	require.Contains(t, log.String(), "::error title=ForgeRun backoff::The client waits. Rule broken in overloaded, seed 7, a|b. Wait.\n")
	require.Contains(t, log.String(), "::error title=ForgeRun::The rule time-outs is required, but was not tested: no wait.\n")
	require.Len(t, bytes.Split(bytes.TrimSpace(log.Bytes()), []byte("\n")), 2)
}
