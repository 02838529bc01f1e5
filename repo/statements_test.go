package repo_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/pg"
)

// TestPlans prepares only the statements that are sent, so it would not notice an unused one.
func TestEveryStatementIsUsed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	mention := regexp.MustCompile(`(?:statement\("|\n-- \w+: \w+ of |, \w+ of )(\w+)|\{\{(\w+)\}\}`)
	for _, m := range mention.FindAllStringSubmatch(repo.Sources(), -1) {
		used[m[1]+m[2]] = true
	}
	catalog, _ := pg.Catalog()
	for _, name := range catalog {
		require.True(t, used[name], "%s is not used", name)
	}
}
