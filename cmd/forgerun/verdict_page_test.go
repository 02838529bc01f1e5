package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testbed/summary"
	"github.com/forgerun/forgerun/verdict"
)

// The verdict page of a session with faults and broken rules works in any window: it loads nothing, violates no policy, fits the window,
// and has no broken internal link.
func TestVerdictPage(t *testing.T) {
	s := newStack(t, withTestbed)
	api, second := s.startLeader(), s.startAPI() // a session contains the requests to both processes
	u := s.newUser(api)
	session := u.startSession(api, "")
	u.disturb(api, `[{"match":{"operation":"submitJob","nth":1},"effect":{"close":"after_commit"}},
		{"match":{"operation":"getJob","every":3},"effect":{"status":503,"retry_after":5}}]`)
	id := ""
	for _, key := range []string{"one", "two"} { // the response to the first is lost
		_, text, _ := u.sendUnchecked(api, "POST", "/v1/jobs", execute("SUCCESS_FAST"), "Idempotency-Key", key, "X-Correlation-ID", "order-1")
		id = answer{body: text}.text("job_id")
	}
	for range 8 {
		_, _, err := u.sendUnchecked(second, "GET", "/v1/jobs/"+id, "")
		require.NoError(t, err)
	}
	_, _, err := u.sendUnchecked(second, "GET", "/v1/jobs?limit=1&key="+u.key, "")
	require.NoError(t, err)
	path := "/v1/testbed/sessions/" + session
	u.expect(api, http.StatusOK, "POST", path+"/end", "")
	page := u.expect(api, http.StatusOK, "GET", path+"/verdict", "", "Accept", "text/html").body
	require.NotContains(t, page, u.key)
	v := parsed[verdict.Verdict](t, u.expect(api, http.StatusOK, "GET", path+"/verdict", "").body)
	pages := map[string]string{"/": page, "/index": indexOf(t, v)}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pages[r.URL.Path] == "" {
			t.Errorf("the page fetches %s", r.URL)
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(pages[r.URL.Path]))
	}))
	t.Cleanup(served.Close)

	c := newTab(t, s, strings.TrimPrefix(served.URL, "http://"), "/")
	c.checkLog()
	c.do(chromedp.Reload())
	c.says("FAILED: Your client can create duplicates: ")
	c.says("No API key appears in a URL.")
	require.Equal(t, []string{"Submissions over time", "Reads over time", "Lists over time"},
		evaluate[[]string](c, `[...document.querySelectorAll("svg > title")].map(e => e.textContent)`))
	require.Empty(t, evaluate[[]string](c, `[...document.querySelectorAll('a[href^="#"]')].map(a => a.hash.slice(1))
		.filter(id => document.querySelectorAll("#" + id).length !== 1)`), "links without exactly one target")
	c.everyLook(func(at string) {
		c.seen("verdict-" + at)
		const toggle = `[...document.querySelectorAll("details")].map(d => d.open = !d.open)`
		require.Equal(t, []bool{true, true}, evaluate[[]bool](c, toggle), "kept rules and all requests are collapsed")
		c.seen("verdict-unfolded-" + at)
		evaluate[[]bool](c, toggle)
	})
	for _, scheme := range []string{"light", "dark"} {
		for name := range pages {
			c.do(chromedp.Navigate(served.URL + name))
			c.setLook(390, scheme)
			evaluate[[]bool](c, `[...document.querySelectorAll("details")].map(d => d.open = true)`)
			c.seen("verdict-phone-" + scheme + strings.ReplaceAll(name, "/", "-"))
			require.Empty(t, evaluate[[]string](c, brokenWords), "words broken across lines at %s", name)
		}
	}
	c.requireNoErrors()
}

// indexOf returns the page that lists two sessions with this verdict, one of them with a long name.
func indexOf(t *testing.T, v verdict.Verdict) string {
	t.Helper()
	var all summary.Summary
	all.Add("", v)
	v.Label = "tests/test_orders.py::TestOrders::test_an_order_is_submitted_once[" + strings.Repeat("long-", 20) + "]"
	all.Add("", v)
	var index bytes.Buffer
	require.NoError(t, all.Index(&index, []string{"1.html", "2.html"}))
	return index.String()
}

// brokenWords finds words of usual length that are broken across two lines. It ignores longer texts without a space.
const brokenWords = `(() => {
	const found = [], walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
	for (let node; node = walker.nextNode();)
		for (const text of node.data.matchAll(/\S+/g))
			for (const word of text[0].length > 24 ? [] : text[0].matchAll(/[A-Za-z]{2,16}/g)) {
				const range = document.createRange();
				range.setStart(node, text.index + word.index);
				range.setEnd(node, text.index + word.index + word[0].length);
				if (new Set([...range.getClientRects()].map(r => r.top)).size > 1) found.push(word[0] + " of " + text[0]);
			}
	return found;
})()`
