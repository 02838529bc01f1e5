package pg

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// standIns are what statements stand for that only variants give.
var standIns = []string{"{{owner}}", "", "{{value}}", "", "{{guard}}", "",
	"{{candidates}}", "", "{{table}}", "jobs", "{{key}}", "job_id", "{{order}}", "", "{{within}}", "{{withinLimit}}",
	"{{range}}", "job_id < @id AND webhook_id < @after AND @at AND @from_id", "{{source}}", "jobs",
	"{{sort}}", "job_id", "{{placed}}", "created_at"}

// readAll takes the statements of all folders. What they share with Go code is empty here.
var readAll = sync.OnceFunc(func() {
	folders, _ := filepath.Glob("../*") // the pattern is right
	for _, folder := range append(folders, "..") {
		Statements(os.DirFS(folder), nil)
	}
	for _, s := range sections {
		for _, ref := range regexp.MustCompile(`\{\{\w+\}\}`).FindAllString(s.text, -1) {
			if name := ref[2 : len(ref)-2]; sections[name].text == "" && !slices.Contains(standIns, ref) {
				constants[name] += ""
			}
		}
	}
})

// A comment has a line for itself: nothing of a statement is taken for one.
func TestSectionsAreReadWithoutComments(t *testing.T) {
	t.Parallel()
	readAll()
	require.NotEmpty(t, sections)
	for name, s := range sections {
		require.NotContains(t, s.text, "--", "%s", name)
	}
	s := readSection("-- Locks nothing.\n-- Parameters: @name,\n--   @n\nSELECT '@{{x}}' -- kept\n  -- of a line\nFROM t WHERE a = @n\n")
	require.Equal(t, section{text: "SELECT '@{{x}}' -- kept\nFROM t WHERE a = @n", params: []string{"name", "n"}}, s)
}

func TestParametersAreNumberedAsListed(t *testing.T) {
	t.Parallel()
	readAll()
	for name, s := range sections {
		for i, p := range s.params {
			require.NotContains(t, s.params[:i], p, "%s", name)
			require.Contains(t, expand(s.text, standIns), "@"+p, "%s", name)
		}
	}
	require.Equal(t, "SELECT job_id FROM jobs WHERE batch_id = $1 AND finished_at IS NULL\n"+
		"  AND EXISTS (SELECT FROM batches WHERE batch_id = $1 AND client_id = $2)", statementOf("openJobs"))
	require.Panics(t, func() { statementOf("nothing") })
	require.Panics(t, func() {
		compose("listJobs", []string{"{{owner}}", "client_id", "{{value}}", "@other", "{{guard}}", "true"})
	})
	require.Panics(t, func() { statementOf("listJobs") }, "owner is not known")
}
