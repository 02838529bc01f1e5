package handlers

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
)

// finer are the values of which a sentence of the document says more than their schemas can.
var finer = regexp.MustCompile(`/(cron|time_zone|interval|jitter|media_type|operation|cursor|advance|for|delay)$|^cursor$|` +
	`/result/body$|` + // its bytes count
	`^/jobs/0/(progress|problem|result)$|/effect/(status|retry_after)$`) // not with each other member

// TestRequestsAreAsDocumented sends values at the edges of what the document allows for each parameter and member: what it allows
// is not refused, and what it does not is, with its place.
func TestRequestsAreAsDocumented(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.TestBed = true }).full()
	ids := func(operation, parameter string) string {
		switch {
		case parameter == "n":
			return "1"
		case parameter == "slug":
			return "conflict"
		case parameter == "name":
			return "job-result"
		case parameter == "id" && strings.Contains(operation, "Schedule"):
			return scheduleID.String()
		}
		return jobID.String()
	}
	const anyParams = "            - { type: object, additionalProperties: true }\n" // but those of CUSTOM
	document := strings.Replace(string(docs.OpenAPI), anyParams, "", 1)
	requests := apitest.Requests(t, []byte(document), apitest.Edges, ids)
	require.Greater(t, len(requests), 3000)
	for _, r := range requests {
		if strings.Contains(r.At, "/params") {
			r.Body = strings.Replace(r.Body, `"params":`, `"work_kind":"CUSTOM","params":`, 1)
		}
		headers := []string{"Content-Type", r.Media}
		for name, values := range r.Header {
			headers = append(headers, name, values[0])
		}
		a := w.send(r.Method, r.Path, r.Body, headers...)
		// Here everything has the id that is asked for, and an item of a batch is refused in the answer.
		item := r.Operation == "submitBatch" && strings.HasPrefix(r.At, "/jobs/0")
		if r.Allowed = r.Allowed || r.In == "path" || item; item && a.StatusCode < 500 {
			continue
		}
		assert.Empty(t, r.Problem(a.StatusCode, a.text, func(r *apitest.Request) bool { return finer.MatchString(r.At) }))
	}
}
