package repo_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/pg"
)

// Each .sql file belongs to the Go file of the same name. Each statement and
// fragment in it begins with its contract, and is used.
func TestStatementsHaveAContractAndAreUsed(t *testing.T) {
	t.Parallel()
	code := repo.Sources()
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:statement\(|variant\([^,()]+, )"(\w+)"|"\{\{(\w+)\}\}"`).FindAllStringSubmatch(code, -1) {
		used[m[1]+m[2]] = true // what stands for another one, too
	}
	names := map[string]bool{}
	for _, f := range append(must(filepath.Glob("*.sql"))(t), must(filepath.Glob("*/*.sql"))(t)...) {
		if strings.HasPrefix(f, "testdata") {
			continue
		}
		require.FileExists(t, strings.TrimSuffix(f, ".sql")+".go")
		parts := regexp.MustCompile(`(?m)^-- (?:name|fragment): `).Split(string(must(os.ReadFile(f))(t)), -1)
		require.Empty(t, parts[0], "%s begins with a statement", f)
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
	catalog, _ := pg.Catalog()
	require.Subset(t, catalog, slices.Collect(maps.Keys(names)), "every file is embedded")
	for _, name := range catalog {
		require.True(t, used[name], "%s is not used", name)
	}
}

// A comment has a line for itself: so none is left in what is sent.
func TestStatementsAreSentWithoutComments(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, repo.Statements)
	for name, text := range repo.Statements {
		for _, left := range []string{"--", "/*", "{{", "@"} {
			require.NotContains(t, text, left, "%s", name)
		}
		require.Regexp(t, `^(WITH|SELECT|INSERT|UPDATE|DELETE|LOCK)\s`, text, "%s", name)
	}
}
