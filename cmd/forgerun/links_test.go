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
)

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

// Every link from a page to a file of this repository leads to one, and every
// #anchor to a heading, by the names that GitHub gives to headings.
func TestDocumentationLinks(t *testing.T) {
	t.Parallel()
	pages := markdownFiles(t)
	require.Greater(t, len(pages), 50)
	anchors := map[string][]string{}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		anchors[page] = anchorsOf(string(content))
	}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, link := range linksOf(string(content)) {
			if elsewhere.MatchString(link) {
				continue
			}
			name, anchor, _ := strings.Cut(link, "#")
			target := page
			if name != "" {
				target = filepath.Join(filepath.Dir(page), name)
			}
			_, err := os.Stat(target)
			// A path from the root is one of GitHub's site, not of the repository.
			assert.True(t, err == nil && !strings.HasPrefix(name, "/"), "%s: %s does not exist", page, link)
			if known, isPage := anchors[target]; isPage && anchor != "" {
				assert.Contains(t, known, anchor, "%s: %s has no such heading", page, link)
			}
		}
	}
}

// markdownFiles are the pages of this repository, without those of packages installed in it.
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

// anchorsOf numbers headings of one name as GitHub does: what, what-1, what-2.
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

// anchorOf is what GitHub makes of a heading. tools/site has the same in slugify.
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

func TestDocumentationLinksNamesOfHeadings(t *testing.T) {
	t.Parallel()
	page := "# The `{id}` of a_job: *what*?\n\n```sh\n# a comment\n```\n## [Limits](x.md) & errors ##\n## Same\n## Same\n" +
		"1. item\n   ```\n   [x](none.md)\n   ```\n`[y](none.md)` [`z`](z.md#a) <a id=\"old\" href=\"w.md\">w</a>\n\n[v]: v.md\n"
	require.Equal(t, []string{"the-id-of-a_job-what", "limits--errors", "same", "same-1", "old"}, anchorsOf(page))
	require.Equal(t, []string{"x.md", "z.md#a", "v.md", "w.md"}, linksOf(page))
}
