package handlers

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// below is a public URL with a path.
const below = "http://x.example/forge"

// behindProxy serves behind a proxy that publishes the service below a path, and gives the address of the proxy.
func (w *world) behindProxy() string {
	w.t.Helper()
	target, err := url.Parse(w.start().url)
	require.NoError(w.t, err)
	strip := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	proxy := httptest.NewServer(http.StripPrefix("/forge", strip))
	w.t.Cleanup(proxy.Close)
	return proxy.URL
}

// ask sends a request to the address that a reference in an answer from base leads to.
func ask(t *testing.T, proxy, method, base, reference, body string, header ...string) (res *http.Response, text, address string) {
	t.Helper()
	from, err := url.Parse(base)
	require.NoError(t, err)
	at, err := from.Parse(reference)
	require.NoError(t, err)
	r, err := http.NewRequest(method, strings.Replace(at.String(), "http://x.example", proxy, 1), strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+goodKey)
	if strings.HasSuffix(at.Path, operatorsPath) {
		r.Header.Set("Authorization", "Bearer "+adminKey)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err = http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	read, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(read), at.String()
}

var (
	linkForm = regexp.MustCompile(`<([^>]+)>; rel="([^"]+)"`)
	hrefForm = regexp.MustCompile(` href="([^"#]+)`)
)

// linksIn gives the references in an answer, each with the name of its member or relation.
func linksIn(res *http.Response, text string) map[string]string {
	found := map[string]string{}
	if at := res.Header.Get("Location"); at != "" {
		found[at] = "Location"
	}
	for _, link := range linkForm.FindAllStringSubmatch(res.Header.Get("Link"), -1) {
		found[link[1]] = link[2]
		if strings.Contains(link[2], "/") {
			found[link[2]] = "rel"
		}
	}
	for _, href := range hrefForm.FindAllStringSubmatch(strings.Split(text, "<script>")[0], -1) {
		found[href[1]] = "href"
	}
	var document any
	if strings.Contains(res.Header.Get("Content-Type"), "json") && json.Unmarshal([]byte(text), &document) == nil {
		each(document, "", func(at string, o tree) {
			for name, value := range o {
				reference, _ := value.(string)
				if strings.HasSuffix(at, "/links") || slices.Contains([]string{"instance", "download_url", "type"}, name) &&
					(strings.HasPrefix(reference, "/") || strings.HasPrefix(reference, "http")) {
					found[reference] = name
				}
			}
		})
	}
	return found
}

// What links to POST need as a body, by the names of the links.
var linkBodies = map[string]string{
	"cancel": "", "retry": "", "abort": "", "pause": "", "resume": "", "trigger": "", "test": "", "rotate_secret": "",
	"redeliver": `{"since":"2030-01-31T12:00:00Z"}`, "replay": `{"since":"2030-01-31T12:00:00Z"}`,
}

// TestLinksBelowAPath follows each reference in the answer of each route, as a client behind the proxy does.
func TestLinksBelowAPath(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*world){
		"finished": func(*world) {}, "failed": func(w *world) { w.jobs.job, w.jobs.attempts = failedJob, failedAttempts },
		"unfinished": func(w *world) {
			w.changed(func(j *job.Job) {
				j.State, j.FinishedAt, j.BatchID, j.ScheduleID = job.Running, nil, batchID, scheduleID
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *Config, _ *Deps) { c.PublicURL = below }).full()
			prepare(w)
			proxy, followed := w.behindProxy(), map[string]int{}
			for _, rt := range w.server.Routes {
				if strings.Contains(rt.Path, "api.") { // whose examples are no links
					continue
				}
				for _, header := range [][]string{{}, {"Accept", "application/problem+json"}, {"Authorization", "-"}} {
					res, text, base := ask(t, proxy, rt.Method, below, below+examplePath(rt), exampleBody(rt), header...)
					for reference, name := range linksIn(res, text) {
						w.followed(proxy, base, reference, name)
						followed[name]++
					}
				}
			}
			for _, name := range []string{"Location", "status", "self", "type", "instance", "href", "rel", "jobs", "redeliver", "deliveries"} {
				require.NotZero(t, followed[name], name)
			}
		})
	}
}

func (w *world) followed(proxy, base, reference, name string) {
	w.t.Helper()
	if name != "href" && name != "rel" { // pages and names of relations are not followed by programs
		require.True(w.t, strings.HasPrefix(reference, below+"/"), "%s %s of %s is not absolute", name, reference, base)
	}
	body, posts := linkBodies[name]
	method := map[bool]string{true: "POST", false: "GET"}[posts]
	if strings.Contains(reference, "/deliveries/") {
		body = ""
	}
	t := w.t.(*testing.T)
	res, text, at := ask(t, proxy, method, base, reference, body)
	require.True(t, strings.HasPrefix(at, below+"/"), "%s %s of %s", name, at, base)
	require.Less(t, res.StatusCode, 300, "%s %s of %s: %s", name, at, base, text)
}

// The documents say where the service is, and are as they were where it is not below a path.
func TestDocumentsBelowAPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.PublicURL = below })
	plain := newWorld(t)
	for _, path := range []string{"/openapi.yaml", "/openapi.json", "/asyncapi.yaml", "/asyncapi.json"} {
		below := treeOf([]byte(w.send("GET", path, "").text))
		if servers, ok := below["servers"].([]any); ok {
			require.Equal(t, "/forge", servers[0].(map[string]any)["url"])
			servers[0].(map[string]any)["url"] = "/"
		} else {
			require.Equal(t, "/forge", below.in("servers", "here")["pathname"])
			delete(below.in("servers", "here"), "pathname")
		}
		require.Equal(t, treeOf([]byte(plain.send("GET", path, "").text)), below, path)
	}
	require.Contains(t, w.send("GET", "/v1/job", "").text, "Did you mean "+below+"/v1/jobs?")
	w.madeUp = true // no document has this answer
	moved := w.send("GET", "/v1/jobs?limit=7", "", "ForgeRun-Fault", `{"moved":308}`)
	require.Equal(t, below+"/v1/jobs?limit=7", moved.Header.Get("Location"))
	w.start()
	head := strings.Replace(w.request("GET", "/v1/jobs?limit=7", "Accept", "", headerFault, `{"moved":307,"to_other_host":true}`),
		"Host: x", "Host: localhost:80", 1)
	moved, _ = w.raw(head)
	require.Equal(t, "http://127.0.0.1:80/forge/v1/jobs?limit=7", moved.Header.Get("Location"))
}
