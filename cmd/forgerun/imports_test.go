package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The import rules. Package job is the lowest layer. app uses the store of repo, and handlers use the use cases of app. The adapters
// tasks, webhook and work do not import each other. They share only job, internal/telemetry and internal/clock. The programs, such as
// cmd/forgerun, connect the packages. mayImport and testsMayImport list all allowed imports between our packages.

const module = "github.com/forgerun/forgerun"

// resource lists what a package of the client API may import.
var resource = []string{"handlers/api", "handlers/decode", "handlers/httpkit", "handlers/query", "handlers/views", "job", "job/view"}

// Each package needs a row.
var mayImport = []packageRule{
	{"job", nil},
	{"job/view", []string{"internal/timetable", "job"}},
	{"job/admin", []string{"job", "job/view"}},
	{"job/testbed", []string{"job", "verdict", "verdict/fault", "verdict/wire"}},
	{"verdict", []string{"verdict/fault"}}, // package verdict judges clients of any API, so it does not import ForgeRun's API
	{"verdict/fault", nil},
	{"verdict/redact", nil},
	{"verdict/api", []string{"internal/yamlfile", "verdict", "verdict/fault", "verdict/wire"}},
	{"verdict/proxy", []string{"verdict", "verdict/api", "verdict/fault", "verdict/redact", "verdict/report", "verdict/wire",
		"internal/localhosts", "examples/other-apis/apis test"}},
	{"verdict/wire", []string{"verdict", "verdict/fault", "verdict/redact", "job/testbed test", "verdict/api test"}},
	{"forgeruntest", []string{"client", "verdict/api", "verdict/proxy"}}, // a library for test suites
	{"verdict/report", []string{"internal/junit", "verdict", "verdict/fault"}},
	{"verdict/search", []string{"verdict", "verdict/fault", "verdict/report"}},
	{"migrations", nil},
	{"internal/telemetry", nil},
	{"internal/clock", nil},
	{"internal/timetable", []string{"job"}},
	{"internal/authlimit", []string{"internal/telemetry"}},
	{"internal/localhosts", nil},
	{"internal/operators", []string{"internal/authlimit"}},
	{"console", nil},
	{"monitoring", []string{"internal/localhosts", "internal/operators", "internal/telemetry", "internal/authlimit test"}},
	{"internal/fair", nil},
	{"internal/lifecycle", nil},
	{"internal/version", nil},
	{"internal/junit", nil},
	{"internal/yamlfile", nil},
	{"internal/holders", nil},
	{"internal/stack", []string{"client"}},

	{"app", []string{"job", "internal/telemetry", "repo"}},
	{"app/clients", []string{"app", "job", "internal/operators", "internal/telemetry", "repo", "internal/clock test", "job/testbed test"}},
	{"app/events", []string{"app", "job", "repo"}},
	{"app/batches", []string{"app", "job", "repo"}},
	{"app/overview", []string{"job", "job/admin", "repo", "app test"}},
	{"app/rescue", []string{"app", "app/batches", "job", "repo", "internal/telemetry"}},
	{"app/delivery", []string{"app", "job", "repo", "internal/clock", "internal/fair", "internal/telemetry"}},
	{"app/jobs", []string{"app", "app/batches", "app/events", "job", "internal/telemetry", "repo", "app/... test"}},
	{"app/worker", []string{
		"app", "app/batches", "job", "internal/clock", "internal/telemetry", "repo test", "repo/jobs test", "app/... test",
	}},
	{"app/testbed", []string{
		"app", "app/jobs", "internal/fair", "job", "job/testbed", "repo", "verdict", "verdict/fault", "internal/clock test",
	}},
	{"app/schedules", []string{"app", "app/jobs", "internal/timetable", "job", "repo", "app/... test"}},
	{"app/bulk", []string{"app", "app/jobs", "job", "repo", "app/... test"}},
	{"app/pauses", []string{"app", "job", "repo"}},
	{"app/erasures", []string{"app", "app/jobs", "job", "repo", "app/... test"}},
	{"app/maintenance", []string{
		"app", "app/batches", "app/delivery", "app/rescue", "job", "repo", "internal/clock", "internal/telemetry",
	}},
	{"app/apptest", []string{"app", "job", "internal/telemetry", "internal/testkit"}}, // for tests
	{"handlers", []string{"handlers/httpkit", "handlers/views", "handlers/batches", "handlers/bulk", "handlers/clients", "handlers/events",
		"handlers/jobs", "handlers/schedules", "handlers/site", "handlers/testbed", "handlers/webhooks", "app/...", "job",
		"handlers/... test", "job/... test", "verdict/... test", "internal/authlimit test", "internal/telemetry test"}},
	{"handlers/backend", []string{"app", "app/...", "internal/clock", "internal/operators", "internal/testkit", "job", "repo",
		"repo/repotest"}}, // for tests
	// Packages of the client API's resources do not import each other.
	{"handlers/httpkit", []string{"app", "app/clients", "app/jobs", "handlers/conn", "handlers/cors", "handlers/decode", "handlers/docs",
		"handlers/header", "handlers/problem", "handlers/query", "handlers/stream", "internal/authlimit", "internal/fair",
		"internal/localhosts", "internal/telemetry", "job"}},
	{"handlers/views", []string{"handlers/api", "handlers/problem", "job", "job/view"}},
	{"handlers/jobs", append(resource, "app/jobs", "handlers/header", "handlers/problem")},
	{"handlers/batches", append(resource, "app/jobs", "handlers/problem")},
	{"handlers/bulk", append(resource, "app/bulk")},
	{"handlers/clients", append(resource, "app/clients", "app/jobs", "internal/telemetry")},
	{"handlers/events", append(resource, "app/events", "app/jobs", "handlers/conn", "handlers/stream", "internal/telemetry")},
	{"handlers/schedules", append(resource, "app/schedules")},
	{"handlers/webhooks", append(resource, "app/delivery")},
	{"handlers/site", append(resource, "handlers/docs", "handlers/header")},
	{"handlers/testbed", append(resource, "app/testbed", "handlers/conn", "handlers/disturb", "handlers/docs", "handlers/header",
		"internal/fair",
		"job/testbed", "verdict", "verdict/fault", "verdict/redact", "verdict/report", "verdict/wire")},
	{"handlers/api", []string{"job", "job/view"}},
	{"handlers/conn", []string{"internal/telemetry"}},
	{"handlers/cors", []string{"internal/localhosts", "handlers/docs test"}},
	{"handlers/decode", []string{"handlers/api", "internal/timetable", "job", "job/testbed", "verdict", "verdict/fault"}},
	{"handlers/disturb", []string{"handlers/stream", "job/testbed", "verdict", "verdict/fault", "verdict/wire"}},
	{"handlers/docs", []string{"handlers/problem", "job", "app/... test", "handlers/... test", "repo test"}},
	{"handlers/operator", append(resource, "app/...", "repo/operator", "handlers/conn", "handlers/problem", "internal/localhosts",
		"internal/operators", "job/admin", "job/testbed", "verdict",
		"verdict/fault", "verdict/report", "internal/authlimit test", "internal/telemetry test")},
	{"handlers/problem", []string{"job", "job/view"}},
	{"handlers/query", []string{"handlers/decode", "job"}},
	{"handlers/header", []string{"handlers/decode", "job"}},
	{"handlers/stream", []string{"handlers/conn", "handlers/header", "job", "internal/telemetry"}},
	{"handlers/apitest", nil}, // for tests
	{"tasks", []string{"job test", "internal/telemetry test", "tasks/... test"}},
	{"tasks/redisconn", []string{"internal/telemetry", "job", "tasks/redistest test"}},
	{"tasks/notify", []string{"job", "tasks/redisconn", "tasks/redistest test"}},
	{"tasks/queue", []string{"job", "internal/clock", "internal/telemetry", "tasks/redisconn", "tasks/notify", "tasks/redistest test"}},
	{"tasks/consumer", []string{
		"job", "internal/clock", "internal/telemetry", "tasks/redisconn", "tasks/notify", "tasks/queue", "tasks/consumer/batch",
		"tasks/redistest test",
	}},
	{"tasks/consumer/batch", []string{"job", "internal/clock", "tasks/redisconn", "tasks/notify", "tasks/queue test", "tasks/redistest test"}},
	{"tasks/ratelimit", []string{"job", "tasks/redisconn", "tasks/redistest test"}},
	{"tasks/redistest", []string{"job", "internal/stack", "internal/testkit", "tasks/redisconn"}}, // for tests
	{"webhook", []string{"job", "job/testbed", "verdict/fault", "internal/telemetry", "client test"}},
	{"internal/work", []string{"job"}},
	{"repo", []string{"job", "migrations", "internal/clock", "internal/telemetry", "repo/pg", "repo/clients", "repo/jobs",
		"repo/deliveries", "repo/maintenance", "repo/operator", "repo/testbed",
		"job/admin test", "job/testbed test", "verdict test", "verdict/fault test"}},
	{"repo/pg", []string{"job", "internal/clock", "internal/telemetry"}},
	{"repo/clients", []string{"job", "repo/pg"}},
	{"repo/jobs", []string{"job", "internal/telemetry", "repo/clients", "repo/pg"}},
	{"repo/deliveries", []string{"job", "repo/jobs", "repo/pg"}},
	{"repo/maintenance", []string{"job", "repo/clients", "repo/deliveries", "repo/jobs", "repo/pg"}},
	{"repo/operator", []string{"job", "job/admin", "repo/deliveries", "repo/jobs", "repo/pg"}},
	{"repo/testbed", []string{"job", "job/testbed", "verdict", "verdict/fault", "internal/clock", "repo/pg"}},
	{"internal/doctor", []string{"repo", "tasks/queue"}}, // judges what repo and queue report about their servers
	{"internal/invariants", nil}, // SQL checks that the tests and the simulator share
	{"repo/repotest", []string{"repo", "internal/invariants", "internal/stack"}},
	{"internal/testkit", nil}, // for tests
	{"internal/testkit/browser", nil},
	{"internal/testkit/servers", []string{"internal/stack", "repo/repotest"}},

	// External tools use the service through HTTP. Some also read its database.
	{"client", []string{"job test"}},
	{"examples/other-apis/judge", []string{"examples/other-apis/apis", "verdict"}},
	{"examples/...", []string{"client", "examples/other-apis/apis", "forgeruntest test"}},
	{"clients/python/generate", []string{"handlers/docs"}},
	{"internal/simulator/scenario", nil},
	{"internal/simulator/history", []string{"client"}},
	{"internal/simulator/judge", []string{"client", "internal/cli/term", "internal/simulator/history"}},
	{"internal/simulator/judge/collect", []string{"client", "internal/cli/term", "internal/simulator/history",
		"internal/simulator/judge", "internal/invariants"}},
	{"internal/simulator/receiver", []string{"client", "internal/simulator/history", "internal/simulator/scenario"}},
	{"internal/simulator/report", []string{"internal/cli/term", "internal/junit", "internal/simulator/history test",
		"internal/simulator/judge", "verdict/report"}},
	{"internal/simulator/load", []string{
		"client", "internal/simulator/history", "internal/simulator/receiver", "internal/simulator/report",
		"internal/simulator/scenario",
	}},
	{"internal/simulator/trial", []string{"client", "internal/simulator/...", "internal/stack"}},

	// The command line is an external client, too.
	{"internal/cli/term", nil},
	{"internal/cli/command", []string{"internal/cli/term"}},
	{"internal/cli/...", []string{"client", "internal/cli/..."}},

	{"internal/simulator/commands", []string{"internal/cli/command", "internal/simulator/...", "internal/stack", "internal/version",
		"client test", "job test"}},
	{"internal/testbed", []string{"client", "internal/cli/command", "internal/cli/term", "internal/localhosts", "internal/stack",
		"internal/testbed/summary", "internal/yamlfile", "verdict", "verdict/api", "verdict/fault", "verdict/proxy", "verdict/redact",
		"verdict/search"}},
	{"internal/testbed/summary", []string{"internal/cli/term", "internal/junit", "internal/yamlfile", "verdict", "verdict/fault",
		"verdict/report"}},
	{"cmd/...", []string{"..."}},
	{"internal/bench", []string{"client", "internal/stack", "internal/work test", "job test",
		"repo test"}},
	{"internal/pages", nil},
}

// testsMayImport lists our packages that any test may import.
var testsMayImport = []string{"internal/invariants", "internal/stack", "internal/testkit/...", "repo/repotest",
	"handlers/apitest", "handlers/backend", "app/apptest"}

// onlyIn lists the packages, tests included, that may import a library.
var onlyIn = []struct {
	library string // import path; packages below this path are included
	pkgs    []string
}{
	{"github.com/jackc/pgx", []string{"repo/...", "internal/invariants", "internal/stack test", "internal/simulator/judge/collect",
		"internal/simulator/trial test", "internal/bench", "cmd/... test"}},
	{"github.com/pressly/goose", []string{"repo", "repo/repotest"}},
	{"github.com/hibiken", []string{"tasks/...", "cmd/... test"}},
	{"github.com/redis/go-redis", []string{"tasks/...", "internal/simulator/judge/collect", "cmd/... test"}},
	{"github.com/alicebob/miniredis", []string{"tasks/redistest", "tasks/... test"}},
	{"github.com/gofiber/fiber", []string{"handlers/...", "internal/bench"}},
	{"github.com/valyala/fasthttp", []string{"handlers/...", "handlers/conn test", "handlers/disturb", "internal/bench"}},
	{"github.com/dunglas/httpsfv", []string{"webhook", "client", "handlers/header", "cmd/..."}},
	{"github.com/go-jose", []string{"webhook"}},
	{"code.dny.dev/ssrf", []string{"webhook"}},
	{"github.com/exaring/otelpgx", []string{"repo/pg"}},
	{"go.opentelemetry.io/otel/exporters", []string{"monitoring"}},
	{"go.opentelemetry.io/otel/sdk", []string{"monitoring", "internal/telemetry test", "app/apptest", "app/... test", "handlers test",
		"repo test", "tasks/... test", "webhook test"}},
	{"go.opentelemetry.io/proto", []string{"monitoring test", "cmd/... test"}},
	{"github.com/spf13", []string{"internal/cli/...", "internal/simulator/commands", "internal/testbed", "cmd/..."}},
	{"github.com/creack/pty", []string{"internal/simulator/report test", "internal/cli/... test", "cmd/... test"}},
	{"github.com/chromedp", []string{"internal/testkit/browser", "internal/simulator/report test", "cmd/... test"}},
	{"github.com/fergusstrange/embedded-postgres", []string{"internal/stack"}},
	{"github.com/compose-spec", []string{"monitoring test"}},
	{"github.com/santhosh-tekuri/jsonschema", []string{"handlers/apitest", "verdict/api test", "handlers/docs test", "job test",
		"webhook test", "internal/simulator/scenario", "cmd/... test"}},
}

// These packages may import only the standard library and the libraries listed. Tests may import more.
var standardLibraryOnly = map[string][]string{
	"job": {}, "verdict": {}, "verdict/fault": {}, "verdict/redact": {}, "migrations": {}, "client": {"github.com/dunglas/httpsfv"},
}

type packageRule struct {
	pkg  string   // folder; "x/..." includes the folders below x
	ours []string // " test" limits an entry to test files
}

type file struct {
	path    string // such as app/jobs/*_test.go
	imports []string
}

func (f file) pkg() string  { return path.Dir(f.path) }
func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

func TestImportRulesHold(t *testing.T) {
	t.Parallel()
	files := filesOfModule(t)
	require.NotEmpty(t, files)
	for _, f := range files {
		for _, violation := range violations(f) {
			t.Error(violation)
		}
	}
}

// notShipped lists test libraries that must not be linked into the program.
var notShipped = []string{"github.com/alicebob/miniredis", "github.com/yuin/gopher-lua", "github.com/stretchr/testify",
	"github.com/creack/pty", "github.com/chromedp", module + "/internal/testkit", module + "/repo/repotest", module + "/handlers/backend",
	module + "/tasks/redistest"}

func TestProgramLinksNoLibraryOfTests(t *testing.T) {
	t.Parallel()
	linked, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(linked))
	require.Contains(t, packages, "github.com/redis/go-redis/v9")
	for _, name := range packages {
		require.False(t, slices.ContainsFunc(notShipped, func(library string) bool { return covers(library+"/...", name) }), name)
	}
}

func violations(f file) []string {
	row := slices.IndexFunc(mayImport, func(r packageRule) bool { return covers(r.pkg, f.pkg()) })
	if row < 0 {
		return []string{fmt.Sprintf("%s: package %q has no row in mayImport", f.path, f.pkg())}
	}

	var allowed []string
	for _, entry := range mayImport[row].ours {
		if pattern, testsOnly := strings.CutSuffix(entry, " test"); f.isTest() || !testsOnly {
			allowed = append(allowed, pattern)
		}
	}
	if f.isTest() {
		allowed = append(append(allowed, testsMayImport...), f.pkg())
	}
	var found []string
	for _, imported := range f.imports {
		if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
			if !coveredByAny(allowed, ours) {
				found = append(found, fmt.Sprintf("%s: must not import %s of ours, only %v", f.path, ours, allowed))
			}
			continue
		}
		libraries, only := standardLibraryOnly[f.pkg()]
		if !f.isTest() && isLibrary(imported) && only && !slices.Contains(libraries, imported) {
			found = append(found, fmt.Sprintf("%s: must import the standard library only, not %s", f.path, imported))
		}
		for _, rule := range onlyIn {
			if covers(rule.library+"/...", imported) && !mayUse(rule.pkgs, f) {
				found = append(found, fmt.Sprintf("%s: %s belongs to %v", f.path, imported, rule.pkgs))
			}
		}
	}
	return found
}

// mayUse reports whether an entry covers the file. Entries look like "repo", "cmd/..." or "tasks test".
func mayUse(entries []string, f file) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		pattern, testsOnly := strings.CutSuffix(entry, " test")
		return covers(pattern, f.pkg()) && (f.isTest() || !testsOnly)
	})
}

func coveredByAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, name) })
}

func covers(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	root, below := strings.CutSuffix(pattern, "/...")
	return name == root || below && strings.HasPrefix(name, root+"/")
}

// isLibrary reports whether a package is outside the standard library. The import path of a library begins with a host name.
func isLibrary(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(first, ".")
}

func filesOfModule(t *testing.T) (files []file) {
	t.Helper()
	listed, err := exec.CommandContext(t.Context(), "go", "list", "-tags", "slow", "-json=ImportPath,Imports,TestImports,XTestImports",
		module+"/...").Output()
	require.NoError(t, err)
	for decoder := json.NewDecoder(bytes.NewReader(listed)); decoder.More(); {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
		}
		require.NoError(t, decoder.Decode(&p))
		folder := strings.TrimPrefix(p.ImportPath, module+"/")
		files = append(files, file{folder + "/*.go", p.Imports}, file{folder + "/*_test.go", slices.Concat(p.TestImports, p.XTestImports)})
	}
	return files
}
