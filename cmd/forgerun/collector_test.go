package main

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector receives traces (OTLP over HTTP) from all processes of a stack.
type collector struct {
	t   *testing.T
	env env // what a process needs to send its spans here, soon

	mu    sync.Mutex
	spans map[string]span // by id
}

// span is one of them, with the role of the process that it is from.
type span struct {
	trace, id, parent string
	role, name, kind  string
	failed            bool
	attributes        map[string]string
	events            []string
	links             []string // traces
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
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	content, err := io.ReadAll(body)
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
	got := span{
		trace: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId), parent: hex.EncodeToString(s.ParentSpanId),
		name: s.Name, kind: strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"), attributes: attributes(s.Attributes),
		failed: s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR,
	}
	for _, e := range s.Events {
		got.events = append(got.events, e.Name)
	}
	for _, l := range s.Links {
		got.links = append(got.links, hex.EncodeToString(l.TraceId))
	}
	return got
}

func attributes(list []*commonpb.KeyValue) map[string]string {
	values := map[string]string{}
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			values[a.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			values[a.Key] = strconv.FormatInt(v.IntValue, 10)
		default:
			values[a.Key] = strings.TrimSpace(a.Value.String())
		}
	}
	return values
}

// all gives the spans that came so far.
func (c *collector) all() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []span
	for _, s := range c.spans {
		all = append(all, s)
	}
	return all
}

// await waits for a span.
func (c *collector) await(what string, like func(span) bool) (found span) {
	c.t.Helper()
	eventually(c.t, what, func() bool {
		all := c.all()
		i := slices.IndexFunc(all, like)
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}

// paths gives each span of a trace by the way that leads to it, such as
// "api POST /v1/jobs > api submit job"; those of SQL are all "sql".
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

// requireTree waits until the trace has all these spans, each by its path.
func (c *collector) requireTree(trace string, paths ...string) map[string][]span {
	c.t.Helper()
	missing := func() (left []string) {
		found := c.paths(trace)
		for _, p := range paths {
			if len(found[p]) == 0 {
				left = append(left, p)
			}
		}
		return left
	}
	c.t.Cleanup(func() {
		if left := missing(); c.t.Failed() && len(left) > 0 {
			var have []string
			for p := range c.paths(trace) {
				have = append(have, p)
			}
			slices.Sort(have)
			c.t.Logf("missing in trace %s:\n  %s\nthere is:\n  %s", trace, strings.Join(left, "\n  "), strings.Join(have, "\n  "))
		}
	})
	eventually(c.t, "the spans of trace "+trace, func() bool { return len(missing()) == 0 })
	return c.paths(trace)
}

// checkSpans checks what holds for all spans: a trace begins with a request,
// and nothing secret is in any.
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
