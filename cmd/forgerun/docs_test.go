package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/reliability.md names every end-to-end test here, and none that does not
// exist.
func TestReliabilityPageNamesEveryTest(t *testing.T) {
	t.Parallel()
	unlisted := map[string]bool{ // about this program's papers, not about faults
		"TestMain": true, "TestReliabilityPageNamesEveryTest": true, "TestConfigurationPageListsWhatExists": true,
		"TestImportRulesHold": true, "TestImportRulesCatch": true,
	}
	page, err := os.ReadFile("../../docs/reliability.md")
	require.NoError(t, err)
	named := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bTest\w+[a-z]\b`).FindAllString(string(page), -1) {
		named[name] = true
	}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t`).FindAllStringSubmatch(string(content), -1) {
			name := match[1]
			require.True(t, named[name] || unlisted[name], "%s is not in docs/reliability.md", name)
			delete(named, name)
		}
	}
	delete(named, "TestFlushAll") // the pattern in the last line
	require.Empty(t, named, "named in docs/reliability.md, but nowhere else")
}
