package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/proxy"
)

func secretly(secret string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Set-Cookie", "session="+secret)
		h.Set("ETag", `"Bearer `+secret+`"`)
		switch {
		case r.Method == http.MethodPost:
			h.Set("Location", "/operations/1?sig="+secret)
			w.WriteHeader(http.StatusAccepted)
		case strings.HasSuffix(r.URL.Path, "/events"):
			h.Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "id: a?token=%s\ndata: {}\n\n", secret)
		case r.URL.Query().Get("sig") != secret && strings.HasPrefix(r.URL.Path, "/operations"):
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = io.WriteString(w, `{"status": "Running"}`)
		}
	})
}

// The proxy never shows secrets of the client or the target. Masks do not change the results of rules.
func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	const secret = "S3cr3t.Value-42"
	target := httptest.NewServer(secretly(secret))
	defer target.Close()
	to := must(url.Parse(target.URL))
	to.User = url.UserPassword("me", secret)
	var log bytes.Buffer
	p := proxy.New(to, must(api.Parse([]byte("rules: [outcome-learned, stop-at-end, list-polling]"))),
		slog.New(slog.NewTextHandler(&log, nil)))
	receiver := must(url.Parse("http://me:" + secret + "@127.0.0.1:1/?token=" + secret))
	b := &bench{t, serverOf(t, p), plain(t)}
	hook := &bench{t, serverOf(t, p.Hook(receiver, "whsec_"+secret)), plain(t)}
	id := b.session("")
	asked := b.do("POST", "/things?api_key="+secret, `{"token": "`+secret+`"}`, "Authorization", "Bearer "+secret+secret,
		"Cookie", "sid="+secret,
		"Proxy-Authorization", "Basic "+secret, "X-Api-Key", secret, "Prefer", "wait=1; token="+secret, "X-Correlation-ID", "?key="+secret,
		"Referer", "https://host.example/?code="+secret, "Idempotency-Key", secret)
	require.Equal(t, 202, asked.StatusCode, asked.text)
	at := asked.Header.Get("Location")
	require.Contains(t, at, secret, "the response to the client is not masked")
	for range 3 {
		require.Equal(t, 200, b.do("GET", "/operations/1?sig="+secret, "", "If-None-Match", `"Bearer `+secret+`"`,
			"Accept", "x/y;key="+secret).StatusCode)
		require.Equal(t, 403, b.do("GET", "/operations/1?sig=other", "").StatusCode)
	}
	for _, name := range []string{"key", "Token", "access_token", "signature", "code", "X-Amz-Signature"} {
		b.do("GET", "/list?"+name+"="+secret+"&limit=1", "")
	}
	b.do("GET", "/list?unremarkable="+secret+secret, "", "Authorization", "Bearer "+secret+secret)
	b.do("GET", "/things/events", "", "Accept", "text/event-stream", "Last-Event-ID", "a?token="+secret)
	refusal := hook.do("POST", "/?sig="+secret, `{"id": "?token=`+secret+`", "type": "Bearer `+secret+`"}`, "Content-Type", "application/json")
	require.NoError(t, refusal.err)
	target.Close()
	require.Equal(t, 502, b.do("GET", "/list?token="+secret, "").StatusCode)

	v, results := b.verdict(id)
	shown := map[string]string{"log": log.String(), "the refusal of a delivery": refusal.text}
	for name, form := range map[string][]string{
		"json": {"verdict", "application/json"}, "junit": {"verdict", "application/xml"}, "page": {"verdict", "text/html"},
		"journal": {"journal", ""},
	} {
		shown[name] = b.do("GET", "/-/forgerun/v1/testbed/sessions/"+id+"/"+form[0], "", "Accept", form[1]).text
		require.NotEmpty(t, shown[name], name)
	}
	for name, text := range shown {
		require.NotContains(t, text, secret, name)
	}
	require.Contains(t, shown["journal"], "/list?key=***")
	require.Contains(t, shown["journal"], "&limit=1")
	require.Contains(t, shown["json"], "Bearer tokens SHOULD NOT be passed in page URLs", "quotes are not masked")
	require.True(t, results["no-key-in-url"].Status.Broken())
	require.Equal(t, 9, results["no-key-in-url"].Failures, "URLs with the key of X-Api-Key or with the token")
	require.Positive(t, v.Recorded)
}

func TestMemoryOfLongValuesIsBounded(t *testing.T) { //nolint:paralleltest // it measures the heap of the process
	const responses, size = 600, 60_000
	var n atomic.Int64
	b := newBench(t, "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		i := n.Add(1)
		long := fmt.Sprint(i, strings.Repeat("x", size))
		h := w.Header()
		switch i % 4 {
		case 0:
			h.Set("ETag", `"`+long+`"`)
		case 1:
			h.Set("Location", "/operations/"+long)
			w.WriteHeader(http.StatusAccepted)
		case 2:
			h.Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "id: %s\ndata: {}\n\n", long)
		default:
			h.Set("Location", "/results/"+long)
			w.WriteHeader(http.StatusSeeOther)
		}
	}))
	id := b.session("")
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	long := strings.Repeat("y", 3000)
	for i := range responses {
		method, headers := "POST", []string{"Prefer", fmt.Sprint(i, long), "Last-Event-ID", fmt.Sprint(long, i)}
		if i%2 == 1 {
			method = "GET"
		}
		require.NoError(t, b.do(method, fmt.Sprint("/things/", i, "?q=", long), "", headers...).err)
	}
	took := int64(heap()) - int64(before)
	require.Less(t, took, int64(12<<20), "36 MB were sent")
	v, _ := b.verdict(id)
	require.Equal(t, responses, v.Recorded)
	require.NotEqual(t, verdict.Failed, v.Verdict)
}
