package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPublicURLWithAPath: a proxy publishes the service below a path, which it removes from requests. All URLs in responses, streams and
// deliveries lead through the proxy to the right resource.
func TestPublicURLWithAPath(t *testing.T) {
	const public = "http://x.example/forge"
	s, api, u := newDelivering(t, env{"FORGERUN_PUBLIC_URL": public + "/"})
	target, err := url.Parse(api.url)
	require.NoError(t, err)
	proxy := httptest.NewServer(http.StripPrefix("/forge", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1,
	}))
	t.Cleanup(proxy.Close)
	ask := func(method, reference, accept, body string) (*http.Response, string) {
		base, err := url.Parse(public + "/v1/jobs")
		require.NoError(t, err)
		at, err := base.Parse(reference)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(reference, public+"/"), "%s is absolute", reference)
		through := strings.Replace(at.String(), "http://x.example", proxy.URL, 1)
		r, err := http.NewRequestWithContext(t.Context(), method, through, strings.NewReader(body))
		require.NoError(t, err)
		r.Header = http.Header{"Authorization": {"Bearer " + u.key}, "Content-Type": {"application/json"}, "Accept": {accept}}
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer func() { require.NoError(t, res.Body.Close()) }()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Less(t, res.StatusCode, 300, "%s %s: %s", method, reference, text)
		return res, string(text)
	}

	hook, called := newReceiver(t, nil), newReceiver(t, nil)
	_, text := ask("POST", public+"/v1/webhooks", "*/*", `{"url":"`+hook.url+`","events":["*"]}`)
	webhook := answer{body: text}
	ask("GET", webhook.text("links.self"), "*/*", "")
	res, _ := ask("POST", public+"/v1/jobs", "*/*", execute("FAIL_AFTER_RETRYABLE", `"callback":"`+called.url+`"`))
	location := res.Header.Get("Location")
	id := location[strings.LastIndexByte(location, '/')+1:]
	s.await("FAILED", id)
	s.awaitDeliveries()
	_, text = ask("GET", location, "application/json", "")
	var shown struct{ Links map[string]string }
	require.NoError(t, json.Unmarshal([]byte(text), &shown))
	require.Greater(t, len(shown.Links), 4)
	retry := shown.Links["retry"]
	delete(shown.Links, "retry")
	for _, link := range shown.Links {
		ask("GET", link, "application/json", "")
	}

	instance := public + "/v1/jobs/" + id + "/attempts/1"
	_, stream := ask("GET", shown.Links["events"], "text/event-stream", "")
	require.Contains(t, stream, `"instance":"`+instance+`"`)
	for _, r := range []*receiver{hook, called} {
		delivered := r.await("the failure", func(d received) bool { return d.job() == id && d.event() == "job.failed" })
		require.Equal(t, []any{instance, public + "/v1"}, []any{delivered.value("instance"), delivered.header.Get("Ce-Source")})
		ask("GET", instance, "*/*", "")
		ask("GET", delivered.value("type").(string), "*/*", "")
	}
	_, text = ask("GET", shown.Links["deliveries"], "*/*", "")
	var list struct {
		Data []struct{ Links map[string]string }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	require.NotEmpty(t, list.Data)
	ask("GET", list.Data[0].Links["self"], "*/*", "")
	ask("POST", list.Data[0].Links["redeliver"], "*/*", "")
	ask("POST", retry, "*/*", "")
	ask("GET", public+"/.well-known/http-message-signatures-directory", "*/*", "")
}
