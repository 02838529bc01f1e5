package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// A look is a width and a colour scheme. Pages are looked at in one; with -tags slow on a phone and on a desktop, in both colour
// schemes, and axe looks too.
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
		c.dress(l.width, l.scheme)
		at(fmt.Sprintf("%s-%d", l.scheme, l.width))
	}
}

// seen checks that the page fits the window and is accessible, and keeps a picture of it.
func (c *consoleTab) seen(name string) {
	c.t.Helper()
	c.until(name+" fits", `document.documentElement.scrollWidth <= innerWidth`)
	accessible(c, name)
	shot, err := inPage(c.ctx, chromedp.FullScreenshot(80))
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(filepath.Join(c.t.ArtifactDir(), name+".jpg"), shot, 0o600))
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

// operation opens the details of one.
func (c *consoleTab) operation(id string) {
	c.t.Helper()
	c.until("the operation "+id, fmt.Sprintf(`(location.hash = %q, document.getElementById(%[1]q).open)`, id))
}

// The page has a sample and a curl line for each operation, no dead link, is short, and fits.
func TestDocsPage(t *testing.T) {
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
		const dead = [], pages = new Set();
		for (const link of document.querySelectorAll("a[href]")) {
			const href = link.getAttribute("href");
			if (!href.startsWith("#")) pages.add(link.href.split("#")[0]);
			else if (!document.getElementById(href.slice(1))) dead.push(href);
		}
		await Promise.all([...pages].map(async (page) => (await fetch(page, {method: "HEAD"})).ok || dead.push(page)));
		return dead;
	})()`))
	require.Empty(t, evaluate[[]string](c, `[...document.querySelectorAll("[id]")].map(e => e.id)
		.filter((id, i, ids) => ids.indexOf(id) !== i)`), "two things of one id")

	c.everyLook(func(at string) {
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
	c.everyLook(func(at string) { c.seen("problem-" + at) })
	c.noneWrong()
}

// A developer finds an operation, copies its line, sends requests with a key, and sees a stream. The key is only in the
// field.
func TestDocsPageTriesRequests(t *testing.T) {
	s, api, u := newWorking(t)
	c := openDocs(t, s, api)
	typed := func(selector, value string) {
		evaluate[bool](c, fmt.Sprintf(`(e => { e.value = %q; return e.dispatchEvent(new Event("input", { bubbles: true })); })(
			document.querySelector(%q))`, value, selector))
	}
	shown := `[...document.querySelectorAll(".op:not([hidden])")].map(e => e.id)`
	typed("#search", "dry_run operation")
	require.Contains(t, evaluate[[]string](c, shown), "beginBulk")
	require.NotContains(t, evaluate[[]string](c, shown), "deleteJob")
	typed("#search", "zyzzyva")
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
	line := evaluate[string](c, `document.querySelector("#submitJob .curl").textContent`)
	said := runIn(t, ".", []string{"FORGERUN_API_KEY=" + u.key}, "sh", "-c", strings.Replace(line, "curl ", "curl -sS --fail-with-body ", 1))
	require.Contains(t, said, `"job_id"`)
}

// The script of a page of a named origin does what any client does, and reads errors and streams; other pages, and the admin
// listener, get nothing.
func TestPagesOfNamedOrigins(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<!DOCTYPE html><title>An application</title>")
	})
	named, other := httptest.NewServer(page), httptest.NewServer(page)
	t.Cleanup(named.Close)
	t.Cleanup(other.Close)
	s, api, u := newService(t, env{"FORGERUN_CORS_ORIGINS": named.URL})
	c := &consoleTab{browser: newBrowser(t, ""), t: t, s: s}
	ask := func(method, url, body, headers string) string {
		return fmt.Sprintf(`fetch(%q, { method: %q, body: %s, headers: { Authorization: "Bearer %s", %s } })`, url, method, body, u.key, headers)
	}
	get := func(path, headers string) string { return ask("GET", api.url+path, "undefined", headers) }
	const reads, text = `.then(r => r.status + " " + (r.headers.get("Location") || r.headers.get("WWW-Authenticate")))`, `.then(r => r.text())`

	c.do(chromedp.Navigate(named.URL))
	submitted := evaluate[string](c, ask("POST", api.url+"/v1/jobs", fmt.Sprintf("%q", execute("SUCCESS_FAST")),
		`"Content-Type": "application/json", "Idempotency-Key": "of-a-page", "X-Correlation-ID": "page-7"`)+reads)
	id := s.text(`SELECT job_id::text FROM jobs`)
	require.Equal(t, "202 /v1/jobs/"+id, submitted)
	require.Contains(t, evaluate[string](c, get("/v1/jobs?correlation_id=page-7", "")+text), id)
	require.Contains(t, evaluate[string](c, get("/v1/jobs?correlation_id=page-8", "")+text), `"data":[]`)
	require.Equal(t, "401 Bearer", evaluate[string](c, get("/v1/jobs", `Authorization: "Bearer frk_nobody"`)+reads))
	require.Contains(t, evaluate[string](c, fmt.Sprintf(`fetch(%q)`, api.url+"/openapi.yaml")+text), "openapi: 3.1.0")
	require.Contains(t, evaluate[string](c, get("/v1/jobs/"+id+"/events", `Accept: "text/event-stream", "Last-Event-ID": "1"`)+
		`.then(async r => {
			const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
			let text = String(r.status), done = r.status !== 200;
			while (!done && !text.includes("event: job-queued")) {
				const part = await reader.read();
				[text, done] = [text + part.value, part.done];
			}
			await reader.cancel();
			return text;
		})`), "event: job-queued")
	const refused = `.then(r => "answered " + r.status, e => "refused")`
	admin := api.adminURL()
	require.Equal(t, "refused", evaluate[string](c, fmt.Sprintf(`fetch(%q)`, admin+"/healthz")+refused))
	require.Equal(t, "refused", evaluate[string](c, ask("GET", admin+"/admin/v1/clients", "undefined", "")+refused))

	c.do(chromedp.Navigate(other.URL))
	require.Equal(t, "refused", evaluate[string](c, get("/v1/jobs", "")+refused))
	require.Equal(t, "refused", evaluate[string](c, fmt.Sprintf(`fetch(%q)`, api.url+"/openapi.yaml")+refused))
}

// All origins, and registration that is open to anybody who reaches the service, do not go together.
func TestAllOriginsNeedClosedRegistration(t *testing.T) {
	t.Parallel()
	for _, environment := range []env{{"FORGERUN_OPEN_REGISTRATION": "true"}, nil} {
		all := merge(required, env{"FORGERUN_CORS_ORIGINS": "*"}, environment)
		_, err := LoadConfig("api", func(name string) string { return all[name] })
		if environment == nil {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "FORGERUN_CORS_ORIGINS=* does not go with FORGERUN_OPEN_REGISTRATION")
	}
	cfg, err := LoadConfig("dev", func(string) string { return "" })
	require.NoError(t, err)
	require.True(t, cfg.Network.Origins.Allows("http://localhost:5173"))
	require.True(t, cfg.Network.Origins.Allows("http://127.0.0.1:3000"))
	require.False(t, cfg.Network.Origins.Allows("https://app.example.com"))
}
