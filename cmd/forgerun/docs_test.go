package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

var aboutFaults = regexp.MustCompile(`/(?:\w+_fault|\w+_crash|faults\w*|leader|shutdown|ready\w*|keys|limits)_test\.go$`)

func TestReliabilityPageNamesEveryTest(t *testing.T) {
	t.Parallel()
	page := readText(t, "../../docs/explanation/reliability.md")
	exist := existingTests(t)
	for _, name := range regexp.MustCompile(`\bTest\w+\b`).FindAllString(page, -1) {
		require.True(t, exist[name] != "" || name == "TestFlushAll", "%s is named in docs/explanation/reliability.md, but does not exist", name)
	}
	for name, file := range exist {
		if filepath.Dir(file) == "../../cmd/forgerun" && aboutFaults.MatchString(file) {
			require.Contains(t, page, name, "docs/explanation/reliability.md")
		}
	}
}

func existingTests(t *testing.T) map[string]string {
	t.Helper()
	exist := map[string]string{}
	err := filepath.WalkDir("../..", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t`).FindAllStringSubmatch(string(content), -1) {
			exist[match[1]] = file
		}
		return nil
	})
	require.NoError(t, err)
	return exist
}

func TestAPIPageListsTheCatalogue(t *testing.T) {
	t.Parallel()
	_, page, found := strings.Cut(readText(t, "../../docs/reference/api.md"), "\n## Work kinds\n")
	require.True(t, found)
	for _, kind := range job.Kinds() {
		spec, _ := job.SpecOf(kind, 0)
		duration, size := strconv.FormatInt(spec.DurationMS, 10)+" ms", strconv.Itoa(spec.PayloadSize/1024)+" KiB"
		switch kind {
		case job.RunsOverTimeout:
			duration = "limit + 1000 ms"
		case job.PayloadInvalid:
			duration, size = "-", "-"
		}
		row := regexp.MustCompile("(?m)^\\| .*`" + string(kind) + "`.* \\| " + // similar kinds share a row
			regexp.QuoteMeta(duration+" | "+size+" | "+spec.Expected))
		require.Regexp(t, row, strings.ReplaceAll(page, ",000", "000"), kind)
	}
}

var sourceFile = regexp.MustCompile(
	"`((?:app|client|cmd|handlers|internal|job|migrations|monitoring|repo|scripts|tasks|webhook)/[\\w./-]+\\.\\w+)`")

func TestDocumentationNamesFilesThatExist(t *testing.T) {
	t.Parallel()
	for _, page := range markdownFiles(t) {
		text := readText(t, page)
		for _, named := range sourceFile.FindAllStringSubmatch(text, -1) {
			name := strings.Replace(named[1], "NNNNN_what", "00001_functions", 1) // placeholder for the name of a new migration
			found, err := filepath.Glob("../../" + name)
			require.NoError(t, err)
			require.NotEmpty(t, found, "%s in %s", name, page)
		}
	}
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^ *```.*?^ *```[^\n]*$")
	codeSpan   = regexp.MustCompile("`[^`\n]+`")
	inlineLink = regexp.MustCompile(`\]\(<?([^)>\s]+)`)
	namedLink  = regexp.MustCompile(`(?m)^\[[^\]]+\]: +(\S+)`)
	htmlLink   = regexp.MustCompile(`(?:src|href)="([^"]+)"`)
	htmlAnchor = regexp.MustCompile(`(?:id|name)="([^"]+)"`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.+?)[ #]*$`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	elsewhere  = regexp.MustCompile(`^(?:[a-z][a-z0-9+.-]*:|//)`)
)

func TestDocumentationLinks(t *testing.T) {
	t.Parallel()
	pages := markdownFiles(t)
	require.Greater(t, len(pages), 25)
	anchors := map[string][]string{}
	for _, page := range pages {
		anchors[page] = anchorsOf(readText(t, page))
	}
	for _, page := range pages {
		content := readText(t, page)
		for _, link := range linksOf(content) {
			if elsewhere.MatchString(link) {
				continue
			}
			name, anchor, _ := strings.Cut(link, "#")
			target := page
			if name != "" {
				target = filepath.Join(filepath.Dir(page), name)
			}
			_, err := os.Stat(target)
			// A link that begins with / works on GitHub, but not in an editor or on the site.
			assert.True(t, err == nil && !strings.HasPrefix(name, "/"), "%s: %s does not exist", page, link)
			if known, isPage := anchors[target]; isPage && anchor != "" {
				assert.Contains(t, known, anchor, "%s: %s has no such heading", page, link)
			}
		}
	}
}

func markdownFiles(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../*.md")
	require.NoError(t, err)
	for _, folder := range []string{"docs", "clients", "examples"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(file string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "node_modules" {
				return filepath.SkipDir
			}
			if strings.HasSuffix(file, ".md") {
				pages = append(pages, file)
			}
			return err
		})
		require.NoError(t, err)
	}
	return pages
}

func linksOf(page string) []string {
	page = codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(page, ""), "")
	var links []string
	for _, form := range []*regexp.Regexp{inlineLink, namedLink, htmlLink} {
		for _, found := range form.FindAllStringSubmatch(page, -1) {
			links = append(links, found[1])
		}
	}
	return links
}

// anchorsOf returns the anchors of a page. Like GitHub, it numbers equal headings: name, name-1, name-2.
func anchorsOf(page string) []string {
	page = codeBlock.ReplaceAllString(page, "")
	var anchors []string
	for _, found := range heading.FindAllStringSubmatch(page, -1) {
		name := anchorOf(found[1])
		anchor := name
		for n := 1; slices.Contains(anchors, anchor); n++ {
			anchor = name + "-" + strconv.Itoa(n)
		}
		anchors = append(anchors, anchor)
	}
	for _, found := range htmlAnchor.FindAllStringSubmatch(page, -1) {
		anchors = append(anchors, found[1])
	}
	return anchors
}

// anchorOf returns GitHub's anchor for a heading. Keep it equal to slugify in tools/site.
func anchorOf(heading string) string {
	heading = strings.ToLower(linkText.ReplaceAllString(heading, "$1"))
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.Pc):
			return r
		default:
			return -1
		}
	}, heading)
}
