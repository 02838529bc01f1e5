//go:build slow

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/cors"
)

const pageScript = `
import { ForgeRun, ProblemError } from "/client/index.js";

const exposed = ["Idempotency-Replayed", "Link", "Location", "ETag", "RateLimit", "RateLimit-Policy", "Retry-After", "X-Request-Id"];
const read = new Set();
const noting = async (...request) => {
  const response = await fetch(...request);
  for (const name of exposed) if (response.headers.has(name)) read.add(name);
  return response;
};
window.go = async (url, apiKey) => {
  const signal = AbortSignal.timeout(60_000);
  const forgerun = new ForgeRun({ url, apiKey, fetch: noting });
  const order = { type: "EXECUTE", work_kind: "SUCCESS_FAST" };
  const options = { idempotencyKey: "of-a-page", correlationId: "page-7", signal };
  const { job_id } = await forgerun.submit(order, options);
  const repeated = (await forgerun.submit(order, options)).job_id;
  await forgerun.get(job_id);
  const events = [];
  for await (const event of forgerun.stream(job_id, { lastEventId: "1", signal })) if (event.id) events.push(event.name);
  const { state } = await forgerun.wait(job_id, { signal });
  const bytes = (await forgerun.result(job_id, { signal })).data.length;
  const { batch_id } = await forgerun.submitBatch([order, order], { signal });
  const { status } = await forgerun.waitBatch(batch_id, { signal });
  let listed = 0;
  for await (const _ of forgerun.jobs({ batch_id, limit: 1 }, { signal })) listed++;
  const refused = async (call) => {
    const error = await call.then(() => undefined, (error) => error);
    return error instanceof ProblemError
      ? [error.status, error.code, error.retryable, error.requestId !== undefined].join() : String(error);
  };
  return JSON.stringify({
    same: repeated === job_id, events, state, bytes, status, listed, read: [...read].sort(),
    missing: await refused(forgerun.get("nobody's")), stranger: await refused(new ForgeRun({ url, apiKey: "frk_x" }).get(job_id)),
  });
};
window.ready = true;
`

// Pages of allowed origins can use the built library. Other pages cannot read responses.
func TestTypeScriptLibraryInAPage(t *testing.T) {
	library := filepath.Join(compileTypeScript(t), "src")
	require.NoError(t, os.WriteFile(filepath.Join(library, "page.js"), []byte(pageScript), 0o600))
	pages := http.NewServeMux()
	pages.Handle("GET /client/", http.StripPrefix("/client/", http.FileServer(http.Dir(library))))
	pages.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, `<!DOCTYPE html><title>An application</title><script type="module" src="/client/page.js"></script>`)
	})
	site := httptest.NewServer(pages)
	t.Cleanup(site.Close)
	s, api, u := newWorking(t, env{"FORGERUN_CORS_ORIGINS": cors.Loopback})
	c := newTab(t, s, strings.TrimPrefix(site.URL, "http://"), "/")
	c.until("the library is there", `window.ready === true`)
	output := evaluate[string](c, fmt.Sprintf(`go(%q, %q)`, api.url, u.key))
	found := parsed[struct {
		Same              bool
		Events, Read      []string
		State, Status     string
		Bytes, Listed     int
		Missing, Stranger string
	}](t, output)
	require.True(t, found.Same, "one key, one job")
	require.Equal(t, []string{"job-queued", "job-assigned", "job-running", "job-succeeded"}, found.Events)
	require.Equal(t, "SUCCEEDED 4096 COMPLETED 2", fmt.Sprint(found.State, " ", found.Bytes, " ", found.Status, " ", found.Listed))
	require.Equal(t, []string{
		"ETag", "Idempotency-Replayed", "Link", "Location", "RateLimit", "RateLimit-Policy", "Retry-After", "X-Request-Id",
	}, found.Read)
	require.Equal(t, "404,RFA_JOB_NOT_FOUND,false,true", found.Missing)
	require.Equal(t, "401,RFA_AUTH_INVALID_CREDENTIALS,false,true", found.Stranger)

	c.do(chromedp.Navigate("data:text/html,<title>A file</title>"))
	require.Equal(t, "null", evaluate[string](c, `origin`))
	const outcome = `.then(r => "answered " + r.status, e => e.name)`
	for _, request := range []string{`{}`, `{ method: "POST", headers: { "Idempotency-Key": "x" } }`} { // without and with a preflight
		require.Equal(t, "TypeError", evaluate[string](c, fmt.Sprintf(`fetch(%q, %s)`, api.url+"/v1/jobs", request)+outcome))
	}
}
