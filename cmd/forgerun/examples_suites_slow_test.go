//go:build slow

package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

func TestExampleSuitesAreJudgedTestByTest(t *testing.T) {
	s := newStack(t, withTestbed)
	api := s.startLeader()
	s.startWorker()
	for name, suite := range map[string]func(*testing.T) []string{"pytest": pytestSuite, "jest": jestSuite, "go": goSuite} {
		t.Run(name, func(t *testing.T) {
			command, file := suite(t), filepath.Join(t.TempDir(), "v.json")
			var out, errors bytes.Buffer
			code := run(t.Context(), append([]string{
				"verdict", "--profile", "none", "--url", api.url, "--key", s.newUser(api).key, "--skip", "outcome-learned", "--json-file", file, "--",
			}, command...), func(string) string { return "" }, nil, &out, &errors)
			require.Equal(t, 1, code, out.String()+errors.String())
			requireVerdicts(t, file, out.String())
		})
	}
}

// requireVerdicts checks that each test broke exactly the rules in its name.
func requireVerdicts(t *testing.T, file, output string) {
	t.Helper()
	shown := parsed[struct{ Sessions []verdict.Verdict }](t, readText(t, file))
	tests := map[string]int{}
	for _, v := range shown.Sessions {
		var broken []string
		for _, r := range v.Results {
			if r.Status.Broken() && r.Level == verdict.Must {
				broken = append(broken, r.Rule)
			}
		}
		for sort, rules := range map[string][]string{
			`(?i)right`: nil, `(?i)one.?key.?for`: {"same-body"}, `(?i)key.?in.?the.?url`: {"no-key-in-url"},
		} {
			if regexp.MustCompile(sort).MatchString(v.Label) {
				tests[sort]++
				require.Equal(t, rules, broken, "%s\n%s", v.Label, output)
			}
		}
	}
	sum := 0
	for _, n := range tests {
		require.GreaterOrEqual(t, n, 3, output)
		sum += n
	}
	require.Len(t, tests, 3, output)
	require.Len(t, shown.Sessions, sum, output)
}

func pytestSuite(t *testing.T) []string {
	t.Helper()
	library, err := filepath.Abs(filepath.Join(python, "src"))
	require.NoError(t, err)
	plugin, err := filepath.Abs("../../packages/python")
	require.NoError(t, err)
	return []string{
		"env", "-C", filepath.Join(examples, "python", "suite"), "PYTHONPATH=" + library + ":" + plugin, "PYTHONDONTWRITEBYTECODE=1",
		pythonWith(t, "pytest, xdist", "pytest and pytest-xdist"), "-m", "pytest", "-q", "-p", "no:cacheprovider",
		"-p", "pytest_forgerun", "-n", "4",
	}
}

// jestSuite writes the same tests to several files, because Jest runs the tests of one file one after another.
func jestSuite(t *testing.T) []string {
	t.Helper()
	dir := nodeModules(t, packages(t))
	for n := range 4 {
		copyFile(t, filepath.Join(examples, "javascript", "orders.test.js"), filepath.Join(dir, "orders"+strconv.Itoa(n)+".test.js"))
	}
	jest := filepath.Join(dir, "node_modules", "jest", "bin", "jest.js")
	return []string{"env", "-C", dir, "node", jest, "--maxWorkers", "4", "--no-cache"}
}

func goSuite(*testing.T) []string {
	return []string{"go", "test", "-count=1", "-parallel=4", examples + "/go/suite"}
}
