package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/docs"
)

func openDocs(t *testing.T, s *stack, address string) *consoleTab {
	c := newTab(t, s, address, "/docs")
	c.checkLog()
	c.until("the operations", `!!document.querySelector(".opblock")`)
	return c
}

// checkLog makes the test fail if the browser logged anything, such as a violation of the page's policy. Entries from before the call
// count, too.
func (c *consoleTab) checkLog() {
	c.t.Helper()
	require.NoError(c.t, chromedp.Listen(c.ctx, func(event any) {
		if e, ok := event.(*log.EventEntryAdded); ok {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.wrong = append(c.wrong, e.Entry.Text)
		}
	}))
	_, err := chromedp.Call(c.ctx, log.Enable, cdp.Empty{})
	require.NoError(c.t, err)
}

func evaluate[T any](c *consoleTab, expression string) T {
	c.t.Helper()
	value, err := inPage(c.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(c.t, err, expression)
	return value
}

// By default, tests check each page in one look. With -tags slow, they check four looks (phone and desktop, light and dark), and run axe,
// an accessibility checker.
type look struct {
	width  int64
	scheme string
}

var (
	looks      = []look{{1400, "light"}}
	accessible = func(*consoleTab, string) {}
)

func (c *consoleTab) everyLook(at func(name string)) {
	for _, l := range looks {
		c.setLook(l.width, l.scheme)
		at(fmt.Sprintf("%s-%d", l.scheme, l.width))
	}
}

func (c *consoleTab) seen(name string) {
	c.t.Helper()
	accessible(c, name)
	c.fits(name)
}

func (c *consoleTab) fits(name string) {
	c.t.Helper()
	c.until(name+" fits", `document.documentElement.scrollWidth <= innerWidth`)
	if flag.Lookup("test.artifacts").Value.String() != "true" {
		return
	}
	shot, err := inPage(c.ctx, chromedp.FullScreenshot(80))
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(filepath.Join(c.t.ArtifactDir(), name+".jpg"), shot, 0o600))
}

func (c *consoleTab) setLook(width int64, scheme string) {
	c.t.Helper()
	_, err := chromedp.Call(c.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(c.t, err)
	c.do(chromedp.EmulateViewport(width, 900))
}

// Operators can also send requests from the docs page of the admin listener. The page loads nothing from other hosts, stores nothing in
// the browser, and fits a phone.
func TestDocsPage(t *testing.T) {
	s, api, u := newWorking(t)
	c := openDocs(t, s, strings.TrimPrefix(api.url, "http://"))
	shown := evaluate[[]string](c, `[...document.querySelectorAll(".opblock")].map(e => e.id.replace(/.*-/, ""))`)
	for at, id := range docs.Operations() {
		require.Contains(t, shown, id, at)
	}
	send := func(id, status string) {
		t.Helper()
		at := fmt.Sprintf(`document.querySelector("[id$='-%s']")`, id)
		evaluate[bool](c, at+`.querySelector(".opblock-summary-control").click(), true`)
		c.until("the form of "+id, `!!`+at+`.querySelector(".execute")`)
		evaluate[bool](c, at+`.querySelector(".execute").click(), true`)
		c.until(id+" answers "+status, fmt.Sprintf(
			`%s.querySelector(".live-responses-table tbody .response-col_status")?.textContent.startsWith(%q)`, at, status))
	}
	c.press("Authorize")
	c.until("the field", `!!document.querySelector("#auth-bearer-value")`)
	evaluate[bool](c, fmt.Sprintf(`(e => { Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(e, %q);
		return e.dispatchEvent(new Event("input", { bubbles: true })); })(document.querySelector("#auth-bearer-value"))`, u.key))
	evaluate[bool](c, `document.querySelector(".auth-btn-wrapper .authorize").click(), document.querySelector(".btn-done").click(), true`)
	send("submitJob", "202")
	s.awaitFinal(s.text(`SELECT job_id::text FROM jobs`))
	send("listJobs", "200") // optional filters stay empty, although the OpenAPI document has examples for them
	require.Contains(t, evaluate[string](c, `document.querySelector("[id$=-listJobs] .live-responses-table").textContent`),
		s.text(`SELECT job_id::text FROM jobs`))
	for _, l := range []look{{390, "light"}, {1400, "dark"}} {
		c.setLook(l.width, l.scheme)
		c.until(fmt.Sprintf("the page fits %d px, %s", l.width, l.scheme), `document.documentElement.scrollWidth <= innerWidth`)
	}
	require.Equal(t, 0, evaluate[int](c, `localStorage.length + sessionStorage.length + document.cookie.length`))
	require.Empty(t, evaluate[[]string](c, `performance.getEntriesByType("resource").map(e => e.name)
		.filter(name => !name.startsWith(location.origin) && !name.startsWith("data:"))`))
	c.requireNoErrors()

	c = openDocs(t, s, api.logged("admin listening")["address"].(string))
	send("getSystem", "200")
	c.requireNoErrors()

	for _, path := range []string{"/problems", "/problems/nosuch", "/problems/rate-limited"} { // all such pages share a style
		c := newTab(t, s, strings.TrimPrefix(api.url, "http://"), path)
		c.setLook(360, "light")
		c.until(path+" fits", `document.documentElement.scrollWidth <= innerWidth`)
		c.everyLook(func(at string) { c.seen("problem-" + at) })
		c.requireNoErrors()
	}
}
