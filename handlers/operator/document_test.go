package operator_test

import (
	"cmp"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/operator"
)

type operation struct{ method, path string }

func documented(t *testing.T) (all []operation) {
	t.Helper()
	var d struct {
		Paths map[string]map[string]any `yaml:"paths"`
	}
	require.NoError(t, yaml.Unmarshal(operator.Document(), &d))
	for path, item := range d.Paths {
		for method := range item {
			if path == "/admin/v1/live" { // this stream never ends; TestLive tests it
				continue
			}
			all = append(all, operation{strings.ToUpper(method), backend.Path(path)})
		}
	}
	require.Greater(t, len(all), 20)
	return all
}

func (o operation) body() string { return exampleBodies[o.method+o.path] }

func ofClient(member, request string) string {
	return `{"client_id":"` + backend.ClientA.String() + `","` + member + `":` + request + `}`
}

var exampleBodies = map[string]string{
	"POST/admin/v1/bulk":                                  `{"action":"retry","filter":{"state":"FAILED"}}`,
	"POST/admin/v1/pauses":                                `{"scope":"ALL","reason":"a release"}`,
	"POST/admin/v1/testbed/clock":                         `{"advance":"1h"}`,
	"POST/admin/v1/jobs":                                  ofClient("job", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`),
	"POST/admin/v1/schedules":                             ofClient("schedule", `{"interval":"1h","job":{"type":"EXECUTE"}}`),
	"POST/admin/v1/testbed/sessions":                      ofClient("session", `{}`),
	"POST" + backend.Path("/admin/v1/clients/{id}/name"):  `{"name":"Billing"}`,
	"POST" + backend.Path("/admin/v1/clients/{id}/erase"): `{"confirm":"` + backend.ClientA.String() + `"}`,
}

// A change with a failed condition is not made, and not in the audit log.
func TestConditionsOnChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, o := range documented(t) {
		if o.method == "GET" {
			continue
		}
		w.Seed()
		for _, header := range [][]string{{"If-Match", `"bogus"`}, {"If-None-Match", "*"}} {
			r := w.send(changeToken, o.method, o.path, o.body(), header...)
			require.Equal(t, 412, r.StatusCode, "%s %v: %s", o, header, r.text)
			require.Equal(t, 403, w.send(readToken, o.method, o.path, o.body(), header...).StatusCode, o)
		}
		require.Empty(t, w.audit(), o)
		r := w.send(changeToken, o.method, o.path, o.body(), "If-Match", "*")
		require.Less(t, r.StatusCode, 300, "%s: %s", o, r.text)
	}
}

// inProse matches parameters and members with rules that the document states only in prose.
var inProse = regexp.MustCompile(`^cursor$|^/(job|schedule|target|confirm)$|^/filter/all$`)

// TestRequestsAreAsDocumented sends edge cases of each parameter and member. Allowed values must be accepted; other values must be
// refused with an error that names the parameter or member.
func TestRequestsAreAsDocumented(t *testing.T) {
	t.Parallel()
	inPath := func(_, parameter string) string { return "{" + parameter + "}" }
	requests := apitest.Requests(t, operator.Document(), true, inPath)
	require.Greater(t, len(requests), 500)
	apitest.InParallel(t, requests, func(t *testing.T, part []apitest.Request) {
		w, dirty := newWorld(t), false
		for _, r := range part {
			var headers []string
			for name, values := range r.Header {
				headers = append(headers, name, values[0])
			}
			if dirty {
				w.Seed()
			}
			a := w.send(changeToken, r.Method, backend.Path(r.Path), r.Body, headers...)
			dirty = r.Method != "GET" && a.StatusCode < 300
			assert.Empty(t, r.Problem(a.StatusCode, a.text, func(r *apitest.Request) bool { return inProse.MatchString(r.At) }))
		}
	})
}

// The helper send compares each response with the OpenAPI document.
func TestOddRequestsHaveDocumentedResponses(t *testing.T) {
	t.Parallel()
	apitest.InParallel(t, documented(t), func(t *testing.T, part []operation) {
		w := newWorld(t)
		for _, o := range part {
			for _, odd := range apitest.Odd {
				w.send(changeToken, o.method, o.path+"?"+odd.Query, cmp.Or(odd.Body, o.body()), odd.Header...)
			}
		}
	})
}
