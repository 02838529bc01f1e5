//go:build slow

package proxy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/examples/other-apis/apis"
)

const otherAPIs = "../../examples/other-apis"

// clients-judged.md lists rules that clients of other vendors break. Each rule has a profile and a seed. In a session with this profile and
// seed, the client must break this rule. The page must also list all other rules that the client breaks.
func TestJudgedClients(t *testing.T) {
	text, err := os.ReadFile("../../docs/explanation/clients-judged.md")
	require.NoError(t, err)
	page := string(text)
	for name, client := range map[string]struct {
		api     string
		command func(t *testing.T) *exec.Cmd
	}{
		"stripe":                                {"stripe", nodeProgram("stripe")},
		"github.com/hashicorp/go-retryablehttp": {"", goProgram("retryablehttp")},
	} {
		said := broken(t, page, name)
		item := regexp.MustCompile("(?m)^- " + regexp.QuoteMeta(name) + ", `([a-z-]+)` \\(([a-z-]+), seed (\\d)\\)")
		evidence := item.FindAllStringSubmatch(page, -1)
		reported := len(said) - 1 // the page has no profile and seed for outcome-learned
		require.Contains(t, said, "outcome-learned")
		require.Len(t, evidence, reported, name)
		for _, e := range evidence {
			t.Run(strings.Join(append([]string{name}, e[1:]...), "/"), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, client.api, apis.Handler())
				id := b.session(fmt.Sprintf(`{"profile": %q, "seed": %s}`, e[2], e[3]))
				program := client.command(t)
				program.Env = append(os.Environ(), "FORGERUN_URL="+b.url)
				output, _ := program.CombinedOutput() // ignore the error: under some profiles the client gives up
				v, rules := b.verdict(id)
				require.NotZero(t, v.Recorded, string(output))
				require.True(t, rules[e[1]].Status.Broken(), string(output))
				for rule, r := range rules {
					require.True(t, !r.Status.Broken() || slices.Contains(said, rule), rule)
				}
			})
		}
	}
}

func broken(t *testing.T, page, name string) (rules []string) {
	t.Helper()
	_, after, ok := strings.Cut(page, "\n| "+name+" |")
	require.True(t, ok, name)
	line, _, _ := strings.Cut(after, "\n")
	for _, rule := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(line, -1) {
		rules = append(rules, rule[1])
	}
	require.NotEmpty(t, rules, name)
	return rules
}

func nodeProgram(name string) func(*testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd {
		t.Helper()
		if _, err := os.Stat(filepath.Join(otherAPIs, "node", "node_modules", ".package-lock.json")); err != nil {
			t.Skip("run npm ci in examples/other-apis/node")
		}
		return exec.CommandContext(t.Context(), "node", filepath.Join(otherAPIs, "node", name+".mjs"))
	}
}

func goProgram(name string) func(*testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./"+name)
		build.Dir = filepath.Join(otherAPIs, "go")
		if said, err := build.CombinedOutput(); err != nil {
			require.Contains(t, string(said), "proxy.golang.org", string(said))
			t.Skip("the modules are not downloaded, and there is no network")
		}
		return exec.CommandContext(t.Context(), path)
	}
}
