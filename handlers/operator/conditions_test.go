package operator_test

import (
	"cmp"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/operator"
)

// A condition that does not hold, or an answer that is excluded, keeps every change from being made, and from the audit log.
func TestConditionsOnChanges(t *testing.T) {
	t.Parallel()
	for _, o := range documented(t) {
		if o.method == "GET" {
			continue
		}
		w := newWorld(t)
		for _, header := range [][]string{
			{"If-Match", `"bogus"`}, {"If-Match", `W/"1"`}, {"If-Match", ""}, {"If-Match", `"a", *, "b"`}, {"If-None-Match", "*"},
			{"If-Match", "*", "If-None-Match", "*"},
		} {
			r := w.send(changeToken, o.method, o.path, o.body(), header...)
			require.Equal(t, 412, r.StatusCode, "%s %v: %s", o, header, r.text)
			require.Contains(t, r.text, `"status":412`)
			require.Equal(t, 403, w.send(readToken, o.method, o.path, o.body(), header...).StatusCode, o)
			require.Equal(t, 401, w.send("", o.method, o.path, o.body(), header...).StatusCode, o)
		}
		require.Equal(t, 406, w.send(changeToken, o.method, o.path, o.body(), "Accept", "application/json;q=0, */*").StatusCode, o)
		require.Empty(t, w.store.done, o)
		require.Empty(t, w.store.entries, o)
		for i, header := range [][]string{
			{"If-Match", "*"}, {"If-None-Match", `"bogus"`}, {"If-Unmodified-Since", "Thu, 31 Jan 2000 12:01:30 GMT"}, {"Accept", "*/*;q=0.1"},
		} {
			r := w.send(changeToken, o.method, o.path, o.body(), header...)
			require.Less(t, r.StatusCode, 300, "%s %v: %s", o, header, r.text)
			require.Len(t, w.store.done, i+1, o)
		}
	}
}

// What is not there is not found, whatever the condition.
func TestConditionsOnWhatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, header := range []string{"*", `"x"`} {
		require.Equal(t, 404, w.send(changeToken, "DELETE", "/admin/v1/jobs/x", "", "If-Match", header).StatusCode)
		require.Equal(t, 404, w.send(changeToken, "POST", "/admin/v1/webhooks/x/test", "", "If-Match", header).StatusCode)
	}
}

func TestConditionsOnReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, o := range documented(t) {
		if o.method != "GET" {
			continue
		}
		require.Equal(t, 412, w.send(readToken, "GET", o.path, "", "If-Match", `"x"`).StatusCode, o)
		mime := w.send(readToken, "GET", o.path, "", "If-Match", "*").Header.Get("Content-Type")
		require.Equal(t, 406, w.send(readToken, "GET", o.path, "", "Accept", mime+";q=0, */*").StatusCode, o)
	}
}

// finer are the values of which a sentence of the document says more than their schemas can.
var finer = regexp.MustCompile(`^cursor$|^/(job|schedule|target|confirm)$|^/filter/all$`)

// TestRequestsAreAsDocumented sends values at the edges of what the document allows for each parameter and member: what it allows
// is not refused, and what it does not is, with its place.
func TestRequestsAreAsDocumented(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := func(string, string) string { return anID.String() }
	requests := apitest.Requests(t, operator.Document(), true, ids)
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

// Every operation answers whatever may be wrong with a request as the document says: send checks each answer.
func TestOddRequestsHaveDocumentedAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, o := range documented(t) {
		for _, odd := range apitest.Odd {
			w.send(changeToken, o.method, o.path+"?"+odd.Query, cmp.Or(odd.Body, o.body()), odd.Header...)
		}
	}
}
