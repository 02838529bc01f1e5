package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit/browser"
)

type consoleTab struct {
	ctx  context.Context
	t    *testing.T
	s    *stack
	host string

	mu    sync.Mutex
	wrong []string
	hosts []string
}

// newConsole opens the console. At the end, the test fails if a page reported an error.
func newConsole(t *testing.T, s *stack, p *proc) *consoleTab {
	c := newTab(t, s, p.logged("admin listening")["address"].(string), "/")
	t.Cleanup(c.requireNoErrors)
	return c
}

// newTab opens a page in a new tab of the browser that all tests share.
func newTab(t *testing.T, s *stack, host, path string) *consoleTab {
	c := &consoleTab{ctx: browser.Tab(t), t: t, s: s, host: host}
	require.NoError(t, chromedp.Listen(c.ctx, func(event any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			if u, err := url.Parse(e.Request.URL); err == nil && u.Scheme != "data" {
				c.hosts = append(c.hosts, u.Host)
			}
		case *runtime.EventExceptionThrown:
			c.wrong = append(c.wrong, fmt.Sprintf("%+v", e.ExceptionDetails))
		case *runtime.EventConsoleAPICalled:
			if e.Type == "error" {
				c.wrong = append(c.wrong, fmt.Sprintf("%+v", e.Args))
			}
		}
	}))
	_, err := chromedp.Call(c.ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	c.do(chromedp.Navigate("http://" + host + path))
	return c
}

func inPage[T any](ctx context.Context, step chromedp.Action[T]) (T, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	return chromedp.Run(ctx, step)
}

func (c *consoleTab) do(steps ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	for _, step := range steps {
		_, err := inPage(c.ctx, step)
		require.NoError(c.t, err)
	}
}

func (c *consoleTab) until(what, expression string) {
	c.t.Helper()
	began := time.Now()
	for {
		done, err := inPage(c.ctx, chromedp.Evaluate[bool](expression))
		if err == nil && done {
			return
		}
		if time.Since(began) > patience/2 {
			require.Fail(c.t, what, "%v: %s", err, evaluate[string](c, `location.href + " " + document.body.innerText`))
		}
		select {
		case <-c.ctx.Done():
			require.Fail(c.t, what, "%v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *consoleTab) says(text string) {
	c.t.Helper()
	c.until(text, fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}

func (c *consoleTab) open(page string) {
	c.t.Helper()
	evaluate[string](c, fmt.Sprintf(`location.hash = %q`, "#/"+page))
	name, _, _ := strings.Cut(page, "?")
	c.until(page, fmt.Sprintf(`(document.querySelector(".page[data-ready]")?.dataset.key || "")
		.replace(/\/(undefined|null)?$/, "") === %q`, name))
}

// press clicks the button with a label that begins with `text`. If a dialog is open, it looks only in the dialog.
func (c *consoleTab) press(text string) {
	c.t.Helper()
	c.until("a button "+text, fmt.Sprintf(`(() => {
		const all = [...(document.querySelector("dialog[open]") || document).querySelectorAll("button")];
		const found = all.find(b => b.textContent.trim().startsWith(%q) && !b.disabled);
		found?.click();
		return !!found;
	})()`, text))
}

func (c *consoleTab) fill(name, value string) {
	c.t.Helper()
	c.until("a field "+name, fmt.Sprintf(`(() => {
		const field = document.querySelector('[name=%q]');
		if (!field) return false;
		field.value = %q;
		field.dispatchEvent(new Event("input", { bubbles: true }));
		field.dispatchEvent(new Event("change", { bubbles: true }));
		return true;
	})()`, name, value))
}

func (c *consoleTab) login(token string) {
	c.t.Helper()
	c.until("the login", `!!document.querySelector("main.login")`)
	c.fill("token", token)
	c.press("Log in")
}

func (c *consoleTab) requireNoErrors() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Empty(c.t, c.wrong)
	require.NotEmpty(c.t, c.hosts)
	for _, host := range c.hosts {
		require.Equal(c.t, c.host, host, "the page sent a request to this host")
	}
}

func TestConsoleInABrowser(t *testing.T) {
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_ADMIN_READ_TOKEN": readersToken})
	api, worker := s.startLeader(), s.startWorker()
	u := s.newUser(api)
	c := newConsole(t, s, worker)
	c.login("a-wrong-token-of-somebody")
	c.says("No operator has this token.")
	c.login(operatorsToken)
	c.says("Open jobs by state")

	c.open("new")
	c.fill("client_id", u.id)
	c.fill("work_kind", "RETRY_ON_FAIL")
	c.press("Submit")
	c.says("1 job submitted")
	id := s.text(`SELECT job_id::text FROM jobs`)
	c.open("jobs/" + id)
	c.says("FAILED")
	c.press("Retry…")
	c.press("Retry")
	c.says("SUCCEEDED")
	require.Equal(t, 2, s.count(`SELECT attempt FROM jobs WHERE job_id = $1`, id))

	waiting := u.submit(api, `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z",
		"params":{"name":"<img src=x onerror=\"window.owned=1\">","<b>password</b>":"hunter2","n":12345678901234567890}}`)
	c.open("jobs?state=CREATED")
	c.until("the job in the list", fmt.Sprintf(`!!document.querySelector('a[href="#/jobs/%s"]')`, waiting))
	c.open("jobs/" + waiting)
	c.says("<img src=x onerror=") // shown as text, not as markup
	c.says("12345678901234567890")
	c.says("The job's execution_at has not been reached.")
	c.until("text is not markup", `!window.owned && !document.querySelector('main img') && !document.body.innerText.includes("hunter2")`)
	c.press("Cancel…")
	c.press("Cancel")
	c.says("CANCELED")
	c.open("new?from=" + id)
	c.until("the form has the job's kind", `document.querySelector('[name="work_kind"]')?.value === "RETRY_ON_FAIL"`)
	c.fill("work_kind", "SUCCESS_FAST")
	c.press("Submit")
	const edited = `SELECT job_id::text FROM jobs WHERE work_kind = 'SUCCESS_FAST' AND type = 'EXECUTE'`
	eventually(t, "the edited job is submitted", func() bool { return s.count(`SELECT count(*) FROM (`+edited+`) j`) == 1 })
	s.await("SUCCEEDED", s.text(edited))
	c.open("audit")
	c.says("cancel_job")

	// A request with only the session's cookie cannot change anything.
	forged := evaluate[int](c, `fetch("admin/v1/clients", {method: "POST"}).then(r => r.status)`)
	require.Equal(t, http.StatusForbidden, forged)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM clients`))

	c.erase(u.id)
	require.Equal(t, 3, s.count(`SELECT (removed ->> 'jobs')::int FROM erasures WHERE client_id = $1`, u.id))

	// Asynqmon works with our content security policy. newConsole checks that the page loads nothing from other hosts.
	c.do(chromedp.Navigate("http://" + c.host + "/asynqmon/queues/jobs"))
	c.until("the jobs in Asynqmon", `/Processed\s+\d/.test(document.body.innerText)`)
}

var consolePages = map[string]string{
	"overview": "Open jobs by state", "jobs": "FAIL_IMMEDIATE", "jobs?state=FAILED": "RFA_INTERNAL", "new": "Kind", "batches": "Batches",
	"bulk":   "cancel",
	"queues": "SUCCESS_FAST", "failures": "FAIL_IMMEDIATE", "webhooks": "http://127.0.0.1:10/", "schedules": "Europe/Berlin",
	"deliveries": "PENDING", "workers": "ALIVE",
	"clients": "Clients", "erasures": "Erasures", "audit": "Audit", "system": "Workers alive",
}

func TestConsolePages(t *testing.T) {
	s, api, u := newWorking(t)
	u.subscribe(api, "http://127.0.0.1:10/", "*")
	failed := u.submitAndAwait(api, "FAILED", execute("FAIL_IMMEDIATE"))
	u.submit(api, farAway)
	batch := u.submitBatch(api, `{"jobs":[`+execute("SUCCESS_FAST")+`]}`)
	u.schedule(api, `{"name":"nightly","cron":"30 4 * * *","time_zone":"Europe/Berlin","job":{"type":"EXECUTE"}}`)
	begun := s.operator("").expect(api, http.StatusAccepted, "POST", "/admin/v1/bulk",
		`{"action":"cancel","filter":{"kind":"FAIL_IMMEDIATE"}}`)
	pages := map[string]string{"bulk/" + begun.text("bulk_id"): "NOTHING TO DO", "jobs/" + failed: "job.failed", "batches/" + batch: "Batch",
		"clients/" + u.id: "Keys"}
	for page, text := range consolePages {
		pages[page] = text
	}
	c := newConsole(t, s, api)
	c.everyLook(func(at string) {
		for page, text := range pages {
			c.open(page)
			c.says(text)
			name, _, _ := strings.Cut(strings.ReplaceAll(page, "?", "-"), "/")
			if strings.Contains(page, "/") {
				name += "-one"
			}
			c.seen(name + "-" + at)
		}
	})
}

func TestConsoleOfADeadProcess(t *testing.T) {
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": operatorsToken})
	first, second := s.startLeader(), s.startAPI()
	u := s.newUser(second)
	id := u.submit(second, execute("SUCCESS_FAST"))
	c := newConsole(t, s, first)
	c.login(operatorsToken)
	c.open("jobs/" + id)
	c.says("QUEUED")
	const live = `document.querySelector("button.live").textContent`
	first.pause()
	c.until("no updates", live+`.startsWith("No updates for ") && !document.querySelector(".banner")`)
	c.seen("no-news")
	first.resume()
	c.until("it is live again", live+` === "Live" && !document.querySelector(".banner")`)
	first.kill()
	c.until("the banner", `!!document.querySelector('.banner[role="alert"]')`)
	other := newConsole(t, s, second)
	other.login(operatorsToken)
	other.open("jobs/" + id)
	other.says("QUEUED")
	s.startWorker()
	other.says("SUCCEEDED")
}

// An operator retries all jobs that match a filter, sees the progress, and stops the operation. The console of another process shows the
// same operation.
func TestConsoleBulk(t *testing.T) {
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "50"})
	api, other := s.startLeader(), s.startAPI()
	s.startWorker()
	u := s.newUser(api)
	const n = 200
	ids := u.submitCopies(api, n, execute("RETRY_ON_FAIL"))
	s.await("FAILED", ids...)
	c := newConsole(t, s, api)
	c.login(operatorsToken)
	c.open("jobs?state=FAILED")
	c.press("Retry all matching jobs…")
	c.says("200 jobs match")
	c.fill("rate", "1") // slow enough for any browser to show the progress
	c.press("Retry 200")
	c.until("the page of the operation", `location.hash.startsWith("#/bulk/") && document.body.innerText.includes("RUNNING")`)
	c.until("progress, live", `document.querySelector("progress").value >= 2`)
	c.seen("bulk-running")
	second := newConsole(t, s, other)
	second.login(operatorsToken)
	second.open("bulk")
	second.says("RUNNING")
	c.press("Stop")
	c.says("Stop this change?")
	c.press("Stop it")
	c.says("ABORTED")
	second.says("ABORTED")
	done := s.count(`SELECT count(*) FROM bulk_items WHERE result = 'SUCCEEDED'`)
	require.GreaterOrEqual(t, done, 2)
	require.Less(t, done, n)
	require.Equal(t, done, s.count(`SELECT count(*) FROM events WHERE event_name = 'job.retried'`))
	c.says(fmt.Sprintf("%d of 200", done))
	c.open("audit")
	c.says("abort_bulk")
}
