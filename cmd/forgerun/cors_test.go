package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// The script of a page of a named origin does what any client does, and reads errors and streams; other pages, and the admin
// listener, get nothing.
func TestPagesOfNamedOrigins(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<!DOCTYPE html><title>An application</title>")
	})
	named, other := httptest.NewServer(page), httptest.NewServer(page)
	t.Cleanup(named.Close)
	t.Cleanup(other.Close)
	s := newStack(t, env{"FORGERUN_CORS_ORIGINS": named.URL})
	api := s.startAPI()
	u := s.newUser(api)
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
	admin := "http://" + api.logged("admin listening")["address"].(string)
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
