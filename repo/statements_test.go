package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each file in sql/ belongs to the Go file of the same name. Each statement and
// fragment in it begins with its contract, and is used.
func TestStatementsHaveAContractAndAreUsed(t *testing.T) {
	t.Parallel()
	code := goSources(t)
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`statement\("(\w+)"`).FindAllStringSubmatch(code, -1) {
		used[m[1]] = true
	}
	files, err := sqlFiles.ReadDir("sql")
	require.NoError(t, err)
	onDisk, err := filepath.Glob("sql/*")
	require.NoError(t, err)
	require.Len(t, files, len(onDisk), "every file is embedded")
	names := map[string]bool{}
	for _, f := range files {
		require.FileExists(t, strings.TrimSuffix(f.Name(), ".sql")+".go")
		content, err := sqlFiles.ReadFile("sql/" + f.Name())
		require.NoError(t, err)
		parts := regexp.MustCompile(`(?m)^-- (?:name|fragment): `).Split(string(content), -1)
		require.Empty(t, parts[0], "%s begins with a statement", f.Name())
		for _, part := range parts[1:] {
			name, body, _ := strings.Cut(part, "\n")
			require.False(t, names[name], "%s is there twice", name)
			names[name] = true
			require.Regexp(t, `^-- [A-Z][a-z]`, body, "%s: its contract follows its name", name)
			for _, ref := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(body, -1) {
				used[ref[1]] = true
			}
		}
	}
	for name := range names {
		require.True(t, used[name], "%s is not used", name)
	}
	for name := range constants {
		require.True(t, used[name], "%s is not used", name)
	}
}

// A comment has a line for itself: so none is left in what is sent, and nothing
// of a statement is taken for one.
func TestStatementsAreSentWithoutComments(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, Statements)
	for name, text := range Statements {
		for _, left := range []string{"--", "/*", "{{", "@"} {
			require.NotContains(t, text, left, "%s", name)
		}
		require.Regexp(t, `^(WITH|SELECT|INSERT|UPDATE|DELETE)\s`, text, "%s", name)
	}
	for name, s := range sections {
		require.NotContains(t, s.text, "--", "%s", name)
	}
	s := readSection("-- Locks nothing.\n-- Parameters: @name,\n--   @n\nSELECT '@{{x}}' -- kept\n  -- of a line\nFROM t WHERE a = @n\n")
	require.Equal(t, section{text: "SELECT '@{{x}}' -- kept\nFROM t WHERE a = @n", params: []string{"name", "n"}}, s)
}

func TestParametersAreNumberedAsListed(t *testing.T) {
	t.Parallel()
	for name, s := range sections {
		for i, p := range s.params {
			require.NotContains(t, s.params[:i], p, "%s", name)
			require.Contains(t, expand(s.text, []string{"{{owner}}", "", "{{value}}", "", "{{guard}}", "",
				"{{candidates}}", "", "{{table}}", "jobs", "{{key}}", "job_id", "{{order}}", "", "{{within}}", "{{withinLimit}}",
				"{{range}}", "job_id < @id AND webhook_id < @after AND @at AND @from_id", "{{source}}", "jobs",
				"{{sort}}", "job_id", "{{placed}}", "created_at", "{{scheduleValues}}", "@schedules, @scheduled_times"}), "@"+p, "%s", name)
		}
	}
	require.Equal(t, "SELECT job_id FROM jobs WHERE batch_id = $1 AND finished_at IS NULL\n"+
		"  AND EXISTS (SELECT FROM batches WHERE batch_id = $1 AND client_id = $2)", openJobs)
	require.Panics(t, func() { statement("nothing") })
	require.Panics(t, func() { statement("listJobs", "{{owner}}", "client_id", "{{value}}", "@other", "{{guard}}", "true") })
	require.Panics(t, func() { statement("listJobs") }, "owner is not known")
}

// goSources gives the code of the package, without tests.
func goSources(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var all strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}
