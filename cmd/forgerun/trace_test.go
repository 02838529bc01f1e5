package main

import (
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector receives traces (OTLP over HTTP) from all processes of a stack.
type collector struct {
	t   *testing.T
	env env // environment of processes that send their spans to this collector

	mu    sync.Mutex
	spans map[string]span // by span id
}

type span struct {
	trace, id, parent string
	role, name, kind  string
	failed            bool
	attributes        map[string]string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t, spans: map[string]span{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.env = env{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_BSP_SCHEDULE_DELAY": "50"}
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, err := io.ReadAll(r.Body)
	var sent collectorpb.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(content, &sent) != nil {
		http.Error(w, "not traces", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range sent.ResourceSpans {
		role := attributes(resource.Resource.Attributes)["forgerun.role"]
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				got := readSpan(s)
				got.role = role
				c.spans[got.id] = got
			}
		}
	}
}

func readSpan(s *tracepb.Span) span {
	return span{
		trace: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId), parent: hex.EncodeToString(s.ParentSpanId),
		name: s.Name, kind: strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"), attributes: attributes(s.Attributes),
		failed: s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR,
	}
}

func attributes(list []*commonpb.KeyValue) map[string]string {
	values := map[string]string{}
	for _, a := range list {
		values[a.Key] = a.Value.GetStringValue()
	}
	return values
}

func (c *collector) all() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []span
	for _, s := range c.spans {
		all = append(all, s)
	}
	return all
}

// paths returns the spans of a trace by path. A path has the names from the root to the span, joined with " > ".
func (c *collector) paths(trace string) map[string][]span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var path func(s span) string
	path = func(s span) string {
		name := s.role + " " + s.name
		if s.attributes["db.system"]+s.attributes["db.system.name"] != "" {
			name = "sql"
		}
		if above, ok := c.spans[s.parent]; ok {
			return path(above) + " > " + name
		}
		return name
	}
	found := map[string][]span{}
	for _, s := range c.spans {
		if s.trace == trace {
			found[path(s)] = append(found[path(s)], s)
		}
	}
	return found
}

// requireTree waits until the trace has a span at each of these paths, and returns the spans by path. A task that the relay enqueues has
// its spans directly below the request. requireTree accepts this, too.
func (c *collector) requireTree(trace string, paths ...string) (found map[string][]span) {
	c.t.Helper()
	missing := func() (left []string) {
		found = c.paths(trace)
		for _, p := range paths {
			if len(found[p]) == 0 {
				found[p] = found[enqueuedByRequest.ReplaceAllLiteralString(p, processed)]
			}
			if len(found[p]) == 0 {
				left = append(left, p)
			}
		}
		return left
	}
	c.t.Cleanup(func() {
		if left := missing(); c.t.Failed() && len(left) > 0 {
			c.t.Logf("missing in trace %s: %v\nthere is: %v", trace, left, slices.Sorted(maps.Keys(c.paths(trace))))
		}
	})
	eventually(c.t, "the spans of trace "+trace, func() bool { return len(missing()) == 0 })
	return found
}

func (c *collector) checkSpans(secrets []string) {
	c.t.Helper()
	for _, s := range c.all() {
		if s.parent == "" {
			require.Equal(c.t, "SERVER", s.kind, "a trace begins with %q", s.name)
		}
		for key, value := range s.attributes {
			for _, secret := range secrets {
				require.NotContains(c.t, value, secret, "%s of %q", key, s.name)
			}
		}
	}
}

func newTrace() (id, header string) {
	id = strings.ReplaceAll(uuid.NewString(), "-", "")
	return id, "00-" + id + "-00f067aa0ba902b7-01"
}

const (
	enqueued  = " > api enqueue job"
	processed = enqueued + " > worker process job"
)

var enqueuedByRequest = regexp.MustCompile(` > api \w+ job` + processed)

func attemptBelow(request string) []string {
	return []string{
		request + enqueued, request + processed, request + processed + " > worker assign job > worker commit claim > sql",
		request + processed + " > worker run job",
		request + processed + " > worker report job > worker commit finish > sql",
	}
}

// One trace contains the submission, the queue, the worker and the webhook, over three processes. The delivery has a traceparent, so the
// receiver can continue the trace.
func TestTraceOfAJob(t *testing.T) {
	c := newCollector(t)
	s, api, u := newDelivering(t, c.env)
	r := u.receive(api, nil, "job.succeeded")
	trace, header := newTrace()
	id := u.submitAndAwait(api, "SUCCEEDED", execute("SUCCESS_FAST", `"params":{"password":"planted-in-params"}`), "traceparent", header)

	const submit = "api POST /v1/jobs > api submit job"
	tree := c.requireTree(trace, append(attemptBelow(submit),
		submit+" > api commit insert > sql", "api POST /v1/jobs > deliverer deliver event > deliverer commit record > sql")...)
	root := tree["api POST /v1/jobs"][0]
	require.Equal(t, "00f067aa0ba902b7", root.parent, "the parent is the client's span")
	require.Equal(t, "SERVER", root.kind)
	for path, kind := range map[string]string{submit + enqueued: "PRODUCER", submit + processed: "CONSUMER",
		"api POST /v1/jobs > deliverer deliver event": "CLIENT"} {
		require.Len(t, tree[path], 1, path)
		require.Equal(t, kind, tree[path][0].kind, path)
		require.Equal(t, id, tree[path][0].attributes["forgerun.job_id"], path)
		require.False(t, tree[path][0].failed, path)
	}
	run := tree[submit+processed+" > worker run job"][0]
	require.Equal(t, "SUCCESS_FAST", run.attributes["forgerun.work_kind"])
	require.Equal(t, "SUCCEEDED", run.attributes["forgerun.state"])
	sent := r.await("the event", func(d received) bool { return d.job() == id })
	deliver := tree["api POST /v1/jobs > deliverer deliver event"][0]
	require.Equal(t, "00-"+trace+"-"+deliver.id+"-01", sent.header.Get("Traceparent"), "the receiver can continue the trace")
	c.checkSpans(append(s.knownSecrets(), "planted-in-params"))
	api.logged("job transition", `"action":"submit"`, `"trace_id":"`+trace+`"`)
}

func TestTraceSurvivesRepairs(t *testing.T) {
	c := newCollector(t)
	s, api, u := newService(t, c.env, quickLease)
	lost, header := newTrace()
	id := u.submit(api, execute("SUCCESS_FAST"), "traceparent", header)
	c.requireTree(lost, "api POST /v1/jobs > api submit job"+enqueued)
	require.NoError(t, s.rdb.FlushAll(s.ctx()).Err())
	w := s.startWorker(env{"FORGERUN_TIME_SCALE": "1000"})
	s.await("RUNNING", id)
	w.kill()
	s.await("FAILED", id)
	rescue := "api POST /v1/jobs > api rescue job"
	rescued := c.requireTree(lost, rescue, "api POST /v1/jobs"+enqueued)[rescue][0]
	require.Equal(t, id, rescued.attributes["forgerun.job_id"])
	require.Equal(t, "FAILED", rescued.attributes["forgerun.state"])

	s.startWorker()
	again, header := newTrace()
	u.expect(api, http.StatusOK, "POST", "/v1/jobs/"+id+"/retry", "", "traceparent", header)
	s.await("SUCCEEDED", id)
	c.requireTree(again, attemptBelow("api POST /v1/jobs/:id/retry > api retry job")...)
	c.checkSpans(s.knownSecrets())
}

func TestShutdownSendsLastSpans(t *testing.T) {
	c := newCollector(t)
	s := newStack(t, c.env, env{"OTEL_BSP_SCHEDULE_DELAY": "600000"}) // ten minutes, so only a shutdown sends spans
	api := s.startAPI()
	u := s.newUser(api)
	last, header := newTrace()
	u.submit(api, execute("SUCCESS_FAST"), "traceparent", header)
	api.terminate()
	require.Zero(t, api.exitCode())
	c.requireTree(last, "api POST /v1/jobs > api submit job")
	require.NotContains(t, api.log.String(), "not all traces were sent")
}
