package operator_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/operator"
)

// finer are the values of which a sentence of the document says more than their schemas can.
var finer = regexp.MustCompile(`^cursor$|^/(job|target|confirm)$|^/filter/all$`)

// TestRequestsAreAsDocumented sends values at the edges of what the document allows for each parameter and member: what it allows
// is not refused, and what it does not is, with its place.
func TestRequestsAreAsDocumented(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := func(string, string) string { return anID.String() }
	requests := apitest.Requests(t, operator.Document(), apitest.Edges, ids)
	require.Greater(t, len(requests), 500)
	for _, r := range requests {
		var headers []string
		for name, values := range r.Header {
			headers = append(headers, name, values[0])
		}
		a := w.send(changeToken, r.Method, r.Path, r.Body, headers...)
		r.Allowed = r.Allowed || r.In == "path" && r.At != "id" // the fake has every key
		assert.Empty(t, r.Problem(a.StatusCode, a.text, func(r *apitest.Request) bool { return finer.MatchString(r.At) }))
	}
}

// Members are read as in the public API.
func TestMembersAreExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := "/admin/v1/clients/" + anID.String() + "/keys"
	for body, pointer := range map[string]string{
		`{"scope":"read","SCOPE":"all"}`: "/SCOPE", `{"scope":"read","scope":"all"}`: "/scope", `{"rotate":1}`: "/rotate", `{} {}`: "",
	} {
		r := w.post(keys, body)
		require.Equal(t, 400, r.StatusCode, body)
		require.Contains(t, r.text, `"violations":[{"pointer":"`+pointer+`"`, body)
	}
	require.Empty(t, w.store.done)
	require.Equal(t, 201, w.post(keys, `{"scope":null}`).StatusCode)
	require.Equal(t, 400, w.post("/admin/v1/clients", `{"name":"x"}`).StatusCode, "a request without a body")
	for params, pointer := range map[string]string{
		strings.Repeat("[", 70) + strings.Repeat("]", 70): "/job/params/a/0/0", `"\u0000"`: "/job/params/a", `1e400`: "/job/params/a",
	} {
		r := w.post("/admin/v1/jobs", `{"client_id":"`+anID.String()+`","job":{"type":"EXECUTE","params":{"a":`+params+`}}}`)
		require.Contains(t, r.text, `"violations":[{"pointer":"`+pointer, params)
	}
}
