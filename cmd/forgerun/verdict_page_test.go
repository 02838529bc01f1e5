package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// The verdict page of a session with broken rules fits any window, loads nothing and has no broken link.
func TestVerdictPage(t *testing.T) {
	s := newStack(t, withTestbed)
	api, second := s.startLeader(), s.startAPI()
	u := s.newUser(api)
	session := u.startSession(api, "")
	u.disturb(api, `[{"match":{"operation":"submitJob","nth":1},"effect":{"close":"after_commit"}},
		{"match":{"operation":"getJob","every":3},"effect":{"status":503,"retry_after":5}}]`)
	id := ""
	for _, key := range []string{"one", "two"} { // the client does not get the first response
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
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Errorf("the page fetches %s", r.URL)
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(page))
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
	c.requireNoErrors()
}
