package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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

// openDocs opens the page of the API at an address.
func openDocs(t *testing.T, s *stack, address string) *consoleTab {
	c := newTab(t, s, address, "/docs")
	c.hearLog()
	c.do(chromedp.Reload())
	c.until("the operations", `!!document.querySelector(".opblock")`)
	return c
}

// hearLog counts entries of the browser's log as errors, such as violations of the page's policy.
func (c *consoleTab) hearLog() {
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

// evaluate returns the value of an expression in the page, which may be a promise.
func evaluate[T any](c *consoleTab, expression string) T {
	c.t.Helper()
	value, err := inPage(c.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(c.t, err, expression)
	return value
}

// A look is a width and a colour scheme. Tests check pages in one look. With -tags slow, they check phone and desktop in both colour
// schemes, and run axe.
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
	accessible(c, name)
	c.fits(name)
}

// fits checks that the page fits the window, and keeps a picture of it.
func (c *consoleTab) fits(name string) {
	c.t.Helper()
	c.until(name+" fits", `document.documentElement.scrollWidth <= innerWidth`)
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

// A developer enters a key and sends requests from the page; an operator does so on the admin listener. The page loads nothing
// from other hosts, stores nothing in the browser, and fits a phone in both colour schemes.
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
	send("listJobs", "200") // the page sends no example of an optional filter
	require.Contains(t, evaluate[string](c, `document.querySelector("[id$=-listJobs] .live-responses-table").textContent`),
		s.text(`SELECT job_id::text FROM jobs`))
	for _, l := range []look{{390, "light"}, {390, "dark"}, {1400, "light"}, {1400, "dark"}} {
		c.dress(l.width, l.scheme)
		c.until(fmt.Sprintf("the page fits %d px, %s", l.width, l.scheme), `document.documentElement.scrollWidth <= innerWidth`)
	}
	require.Equal(t, 0, evaluate[int](c, `localStorage.length + sessionStorage.length + document.cookie.length`))
	require.Empty(t, evaluate[[]string](c, `performance.getEntriesByType("resource").map(e => e.name)
		.filter(name => !name.startsWith(location.origin) && !name.startsWith("data:"))`))
	c.noneWrong()

	c = openDocs(t, s, api.logged("admin listening")["address"].(string))
	send("getSystem", "200")
	c.noneWrong()
}

// The pages of problems fit a phone.
func TestProblemPagesFit(t *testing.T) {
	s := newStack(t)
	api := s.startAPI()
	for _, path := range []string{"/problems", "/problems/nosuch", "/problems/rate-limited"} { // one style for all
		c := newTab(t, s, strings.TrimPrefix(api.url, "http://"), path)
		c.dress(360, "light")
		c.until(path+" fits", `document.documentElement.scrollWidth <= innerWidth`)
		c.everyLook(func(at string) { c.seen("problem-" + at) })
		c.noneWrong()
	}
}

// Pages of an allowed origin can use the API like any client, and can read errors and streams. Other pages get nothing, and on the
// admin listener no page does.
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

// Allowing all origins requires closed registration.
func TestAllOriginsNeedClosedRegistration(t *testing.T) {
	t.Parallel()
	for _, environment := range []env{{"FORGERUN_OPEN_REGISTRATION": "true"}, nil} {
		all := merge(required, env{"FORGERUN_CORS_ORIGINS": "*"}, environment)
		_, err := LoadConfig("api", func(name string) string { return all[name] })
		if environment == nil {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "FORGERUN_CORS_ORIGINS=* cannot be combined with FORGERUN_OPEN_REGISTRATION")
	}
	cfg, err := LoadConfig("dev", func(string) string { return "" })
	require.NoError(t, err)
	require.True(t, cfg.Network.Origins.Allows("http://localhost:5173"))
	require.True(t, cfg.Network.Origins.Allows("http://127.0.0.1:3000"))
	require.False(t, cfg.Network.Origins.Allows("https://app.example.com"))
}
