//go:build slow

package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/operator"
)

// ownClient matches the paths of requests that change a client's permissions or time. Each of these requests gets a client of its own.
var ownClient = regexp.MustCompile(`^/v1/(clients|testbed)/`)

// fixedParameters contains values of path parameters that are not ids.
var fixedParameters = map[string]string{"n": "1", "slug": "conflict", "name": "job-result"}

// TestNoValueMakesARequestFail replaces each parameter and member in the documents of the client and operator APIs with null, NUL, invalid
// UTF-8, nothing and values of other types. No request returns 500, and the service refuses all values that the document does not allow.
func TestNoValueMakesARequestFail(t *testing.T) {
	s, api, u := newService(t, hooks, env{"FORGERUN_TESTBED": "true", "FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken})
	batch := strings.TrimPrefix(u.expect(api, 202, "POST", "/v1/jobs/batch", `{"jobs":[`+farAway+`]}`).header.Get("Location"), "/v1/batches/")
	_, schedule := u.schedule(api, `{"cron":"0 4 1 1 *","job":{"type":"EXECUTE"}}`)
	ids := map[string]string{
		"jobs": u.submit(api, farAway), "batches": batch, "schedules": schedule, "webhooks": u.subscribe(api, "http://127.0.0.1:10/").id,
	}
	ann := s.operator(operatorsToken)
	ann.id = s.newUser(api).id
	callerOf := func(path string) *user {
		switch {
		case strings.HasPrefix(path, "/admin/"):
			return ann
		case ownClient.MatchString(path):
			return s.newUser(api)
		}
		return u
	}
	var requests []apitest.Request
	for _, document := range [][]byte{operator.Document(), docs.OpenAPI} {
		requests = append(requests, apitest.Requests(t, document, false, func(_, parameter string) string {
			return cmp.Or(fixedParameters[parameter], "{id}")
		})...)
	}
	slices.SortStableFunc(requests, func(a, b apitest.Request) int { return cmp.Compare(turn(a), turn(b)) })
	for _, r := range requests {
		caller := callerOf(r.Path)
		segments := strings.Split(r.Path, "/")
		for i, segment := range segments {
			if segments[max(0, i-1)] == "clients" {
				ids["clients"] = caller.id
			}
			if rest, ok := strings.CutPrefix(segment, "{id}"); ok {
				segments[i] = cmp.Or(ids[segments[i-1]], "0190a1b2-c3d4-7000-8000-000000000b01") + rest
			}
		}
		headers := []string{"Content-Type", r.Media}
		for name, lines := range r.Header {
			headers = append(headers, name, lines[0])
		}
		a := caller.call(api, r.Method, strings.Join(segments, "/"), r.Body, headers...)
		require.NoError(t, a.err)
		if r.Operation == "submitBatch" && strings.HasPrefix(r.At, "/jobs/0") {
			r.Allowed = true // the batch is accepted, and the response lists the refused item
		}
		assert.Empty(t, r.Problem(a.status, a.body, func(*apitest.Request) bool { return true }))
	}
}

// turn returns the position of a request: deletions come after requests that need the resource. Moves of the clock come last, because they
// make keys expire.
func turn(r apitest.Request) int {
	switch {
	case r.Operation == "moveClock":
		return 2
	case r.Method == "DELETE":
		return 1
	}
	return 0
}
