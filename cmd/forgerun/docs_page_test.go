package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/docs"
)

// openDocs opens the API's page of a process.
func openDocs(t *testing.T, s *stack, api *proc) *consoleTab {
	c := newTab(t, s, strings.TrimPrefix(api.url, "http://"), "/docs")
	c.until("the script ran", `!document.querySelector("#tools").hidden`)
	return c
}

// evaluate gives the value of an expression in the page, which may be a promise.
func evaluate[T any](c *consoleTab, expression string) T {
	c.t.Helper()
	value, err := inPage(c.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(c.t, err, expression)
	return value
}

// dress chooses a width and a colour scheme.
func (c *consoleTab) dress(width int64, scheme string) {
	c.t.Helper()
	_, err := chromedp.Call(c.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(c.t, err)
	c.do(chromedp.EmulateViewport(width, 900))
}

// everyDress looks at the page on a phone and on a desktop, in both colour schemes.
func (c *consoleTab) everyDress(look func(at string)) {
	for _, width := range []int64{360, 1400} {
		for _, scheme := range []string{"light", "dark"} {
			c.dress(width, scheme)
			look(fmt.Sprintf("%s-%d", scheme, width))
		}
	}
}

// seen checks that the page fits the window and is accessible, and keeps a picture of it.
func (c *consoleTab) seen(name string) {
	c.t.Helper()
	c.until(name+" fits", `document.documentElement.scrollWidth <= innerWidth`)
	if strings.HasSuffix(name, "-360") { // contrast depends on the scheme alone
		c.accessibleUnfolded(name)
	}
	shot, err := inPage(c.ctx, chromedp.FullScreenshot(100))
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(filepath.Join(c.t.ArtifactDir(), name+".png"), shot, 0o600))
}

// accessibleUnfolded checks what is seen of the page. What is folded away is taken out meanwhile: nobody meets it, and axe takes
// many seconds for its 15,000 elements.
func (c *consoleTab) accessibleUnfolded(at string) {
	c.t.Helper()
	evaluate[bool](c, `window.parked = [...document.querySelectorAll("details:not([open]) > :not(summary)")].map(e => [e, e.parentElement]),
		parked.forEach(([e]) => e.remove()), true`)
	c.accessible(at)
	evaluate[bool](c, `parked.forEach(([e, parent]) => parent.append(e)), true`)
}

// operation opens the details of one.
func (c *consoleTab) operation(id string) {
	c.t.Helper()
	c.until("the operation "+id, fmt.Sprintf(`(location.hash = %q, document.getElementById(%[1]q).open)`, id))
}

// The page has a sample and a curl line for each operation, no dead link, is short, fits and is accessible on a phone and on
// a desktop in both colour schemes.
func TestDocsPage(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startAPI()
	c := openDocs(t, s, api)
	require.NotEmpty(t, docs.Operations())
	shown := evaluate[map[string][]string](c, `Object.fromEntries([...document.querySelectorAll(".op")].map(e => [e.id,
		[".copy > .curl", ".request > pre", ".answer-sample > pre"]
			.map(part => e.querySelector(":scope > .inside > " + part)?.textContent ?? "")]))`)
	for at, id := range docs.Operations() {
		require.Len(t, shown[id], 3, at)
		require.NotContains(t, shown[id], "", "%s: curl line, request, answer", at)
		line, _, _ := strings.Cut(shown[id][0], "\n")
		require.NotContains(t, line, "{", "a parameter of the path without an example")
		require.NotContains(t, line, "//'", at)
	}
	require.Empty(t, evaluate[[]string](c, `(async () => {
		const dead = [], known = new Set();
		for (const link of document.querySelectorAll("a[href]")) {
			const href = link.getAttribute("href");
			if (href.startsWith("#")) {
				if (!document.getElementById(href.slice(1))) dead.push(href);
			} else if (!known.has(href)) {
				known.add(href);
				if (!(await fetch(link.href)).ok) dead.push(href);
			}
		}
		return dead;
	})()`))
	require.Empty(t, evaluate[[]string](c, `[...document.querySelectorAll("[id]")].map(e => e.id)
		.filter((id, i, ids) => ids.indexOf(id) !== i)`), "two things of one id")

	c.everyDress(func(at string) {
		require.Less(t, evaluate[int](c, `document.documentElement.scrollHeight`), 2500, "%s: short while it is folded", at)
		require.Less(t, evaluate[int](c, `Math.round(document.querySelector("main p").getBoundingClientRect().top + scrollY)`), 200,
			"what it is comes first")
		c.seen("docs-" + at)
		c.operation("submitJob")
		c.until("the form", `!!document.querySelector("#submitJob .try")`)
		evaluate[bool](c, `document.querySelectorAll("#submitJob details").forEach(d => { d.open = true; }), true`)
		c.seen("operation-" + at)
		evaluate[bool](c, `location.hash = "", document.querySelector("#submitJob").open = false, true`)
	})
	c.dress(360, "light")
	evaluate[bool](c, `document.querySelectorAll("details").forEach(d => { d.open = true; }), true`)
	c.until("a form for each operation", fmt.Sprintf(`document.querySelectorAll(".try").length === %d`, len(docs.Operations())))
	c.until("all of it fits a phone", `document.documentElement.scrollWidth <= innerWidth`)
	for _, path := range []string{"problems", "problems/nosuch", "problems/rate-limited"} { // which have one style
		c.do(chromedp.Navigate("http://" + c.admin + "/" + path))
		c.until(path+" fits", `document.documentElement.scrollWidth <= innerWidth`)
	}
	c.everyDress(func(at string) { c.seen("problem-" + at) })
	c.noneWrong()
}

// A developer finds an operation, copies its line, sends requests with a key, and sees a stream. The key is nowhere but in the
// field.
func TestDocsPageTriesRequests(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	s.startWorker()
	u := s.newUser(api)
	c := openDocs(t, s, api)
	typed := func(selector, value string) {
		evaluate[bool](c, fmt.Sprintf(`(e => { e.value = %q; return e.dispatchEvent(new Event("input", { bubbles: true })); })(
			document.querySelector(%q))`, value, selector))
	}
	shown := `[...document.querySelectorAll(".op:not([hidden])")].map(e => e.id)`
	typed("#search", "dry_run operation")
	require.Contains(t, evaluate[[]string](c, shown), "beginBulk")
	require.NotContains(t, evaluate[[]string](c, shown), "deleteJob")
	typed("#search", "nothing has these words")
	c.says("0 matches")
	typed("#search", "")
	require.Contains(t, evaluate[[]string](c, shown), "deleteJob")

	const state = `document.querySelector("#%s .state").textContent.startsWith(%q)`
	send := func(id, status string) {
		c.operation(id)
		c.until("a form", fmt.Sprintf(`!!document.querySelector("#%s .send")`, id))
		evaluate[bool](c, fmt.Sprintf(`(t => { t.open = true; t.querySelector(".send").click(); return true; })(
			document.querySelector("#%s .try"))`, id))
		c.until(id+" answers "+status, fmt.Sprintf(state, id, status))
	}
	send("listJobs", "401")
	c.says("enter an API key")
	typed("#key", u.key)
	send("submitJob", "202")
	id := s.text(`SELECT job_id::text FROM jobs`)
	c.until("the answer is shown", fmt.Sprintf(`document.querySelector("#submitJob .answer").textContent.includes(%q)`, id))
	c.operation("getJob")
	evaluate[bool](c, `document.querySelector("#getJob .try").open = true`)
	c.until("the job's id is filled in", fmt.Sprintf(`document.querySelector("#getJob-p0").value === %q`, id))
	send("getJob", "200")
	s.awaitFinal(id)

	// A stream is shown as it comes, and ends when the reader wants it to.
	c.operation("clientEvents")
	evaluate[bool](c, `document.querySelector("#clientEvents-accept").value = "text/event-stream", true`)
	evaluate[bool](c, `document.querySelector("#clientEvents .send").click(), true`)
	c.until("the stream's head", `document.querySelector("#clientEvents .answer").textContent.includes("text/event-stream")`)
	second := u.submit(api, execute("SUCCESS_FAST"))
	c.until("the new job's event", fmt.Sprintf(`document.querySelector("#clientEvents .answer").textContent.includes(%q)`, second))
	evaluate[bool](c, `[...document.querySelectorAll("#clientEvents button")].find(b => b.textContent === "Stop").click(), true`)
	c.until("the stream ended", fmt.Sprintf(state, "clientEvents", "stopped"))

	require.Empty(t, evaluate[string](c, fmt.Sprintf(`[location.href, JSON.stringify(localStorage),
		JSON.stringify(sessionStorage), document.cookie, JSON.stringify(history.state),
		document.documentElement.outerHTML, ...performance.getEntriesByType("resource").map(e => e.name)]
		.filter(text => text.includes(%q)).join()`, u.key)))
	require.Equal(t, 0, evaluate[int](c, `localStorage.length + sessionStorage.length`))
	c.do(chromedp.Reload())
	c.until("the page is there again", `!!document.querySelector("#key")`)
	require.Empty(t, evaluate[string](c, `document.querySelector("#key").value`), "the key is gone with the page")
	c.noneWrong()

	// The line to copy works in a shell as it is.
	shell := func(id string) string {
		line := evaluate[string](c, fmt.Sprintf(`document.querySelector("#%s .curl").textContent`, id))
		require.True(t, strings.HasPrefix(line, "curl "))
		command := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "curl ", "curl -sS --fail-with-body ", 1))
		command.Env = append(slices.Clone(os.Environ()), "FORGERUN_API_KEY="+u.key)
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
		return string(out)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		require.Empty(t, os.Getenv("CI"), "no curl")
		return
	}
	require.Contains(t, shell("submitJob"), `"job_id"`)
	require.Equal(t, 3, s.count(`SELECT count(*) FROM jobs`))
	require.Contains(t, shell("listJobs"), id)
	require.Contains(t, shell("submitBatch"), `"batch_id"`)
}
