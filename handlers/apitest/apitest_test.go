package apitest_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
)

const things = `
openapi: 3.1.0
info: { title: Things, version: "1" }
x-any-request:
  "400": { $ref: "#/components/responses/Problem" }
  "404": { $ref: "#/components/responses/Problem" }
  "405": { $ref: "#/components/responses/Problem" }
paths:
  /things/{id}:
    get:
      responses:
        "200":
          description: The thing.
          headers:
            X-Id: { $ref: "#/components/headers/Id" }
            Retry-After: { schema: { type: integer, minimum: 1 } }
          content:
            application/json: { schema: { $ref: "#/components/schemas/Thing" } }
            text/event-stream: { schema: { type: string } }
        "304": { description: Unchanged. }
        "404": { $ref: "#/components/responses/Problem" }
    delete:
      responses:
        "204": { description: Gone. }
  /things/all:
    get:
      responses:
        "200": { description: All., content: { "*/*": {} } }
components:
  headers:
    Id: { required: true, schema: { type: string, format: uuid } }
  responses:
    Problem:
      description: A problem.
      content:
        application/problem+json:
          schema: { type: object, required: [status], properties: { status: { type: integer } } }
  schemas:
    Named:
      type: object
      required: [name, made]
      properties:
        name: { type: [string, "null"] }
        made: { type: string, format: date-time }
    Thing:
      $ref: "#/components/schemas/Named"
      unevaluatedProperties: false
      properties:
        size: { type: integer }
`

const (
	id    = "0190a1b2-c3d4-7000-8000-000000000001"
	thing = `{"name": null, "made": "2030-01-31T12:00:00Z", "size": 3}`
)

// answer builds a response; headers are name, value, ...
func answer(status int, body string, headers ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i < len(headers); i += 2 {
		res.Header.Add(headers[i], headers[i+1])
	}
	return res
}

func TestVerify(t *testing.T) {
	t.Parallel()
	const (
		asJSON    = "application/json"
		asProblem = "application/problem+json"
		thisPath  = "/things/1"
	)
	ct := http.CanonicalHeaderKey("content-type")
	tests := map[string]struct {
		method, path string
		res          *http.Response
		body         string
		wrong        string // part of what is said; "" for nothing
	}{
		"right":                   {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id), thing, ""},
		"right with more headers": {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id, "Retry-After", "5", "Date", "now"), thing, ""},
		"HEAD":                    {"HEAD", thisPath, answer(200, "", ct, asJSON, "X-Id", id), "", ""},
		"stream":                  {"GET", thisPath, answer(200, "", ct, "text/event-stream", "X-Id", id), "data: 1\n\n", ""},
		"nothing new":             {"GET", thisPath, answer(304, ""), "", ""},
		"deleted":                 {"DELETE", thisPath, answer(204, ""), "", ""},
		"plain path wins":         {"GET", "/things/all", answer(200, "", ct, "image/png"), "PNG", ""},
		"missing":                 {"GET", thisPath, answer(404, "", ct, asProblem), `{"status": 404}`, ""},
		"no such path":            {"GET", "/nothing", answer(404, "", ct, asProblem), `{"status": 404}`, ""},
		"no such method":          {"PUT", thisPath, answer(405, "", ct, asProblem), `{"status": 405}`, ""},
		"unreadable anywhere":     {"PUT", "/nothing", answer(400, "", ct, asProblem), `{"status": 400}`, ""},

		"extra member": {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id),
			`{"name": "a", "made": "2030-01-31T12:00:00Z", "color": 1}`, "color"},
		"missing member":      {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id), `{"name": "a"}`, "made"},
		"wrong type":          {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id), `{"name": 1, "made": "2030-01-31T12:00:00Z"}`, "/name"},
		"wrong null":          {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id), `{"name": "a", "made": null}`, "/made"},
		"wrong format":        {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id), `{"name": "a", "made": "yesterday"}`, "date-time"},
		"not JSON":            {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id), `{"name": `, "not JSON"},
		"two values":          {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id), thing + thing, "not JSON"},
		"no body":             {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id), "", "not JSON"},
		"unknown status":      {"GET", thisPath, answer(201, "", ct, asJSON, "X-Id", id), thing, "the status"},
		"wrong media type":    {"GET", thisPath, answer(200, "", ct, "text/plain", "X-Id", id), thing, "text/plain"},
		"no media type":       {"GET", thisPath, answer(200, "", "X-Id", id), thing, "media type"},
		"missing header":      {"GET", thisPath, answer(200, "", ct, asJSON), thing, "X-Id is missing"},
		"wrong header":        {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", "1"), thing, "uuid"},
		"header not a number": {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id, "Retry-After", "soon"), thing, "Retry-After"},
		"header too small":    {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id, "Retry-After", "0"), thing, "Retry-After"},
		"extra header":        {"GET", thisPath, answer(200, "", ct, asJSON, "X-Id", id, "Etag", `"1"`), thing, "Etag"},
		"body after 204":      {"DELETE", thisPath, answer(204, ""), "{}", "has a body"},
		"body of HEAD":        {"HEAD", thisPath, answer(200, "", ct, asJSON, "X-Id", id), thing, "has a body"},
		"another status":      {"GET", thisPath, answer(404, "", ct, asProblem), `{"status": 400}`, "status 400"},
		"undocumented 404":    {"DELETE", thisPath, answer(404, "", ct, asProblem), `{"status": 404}`, "the status"},
		"405 of a method":     {"GET", thisPath, answer(405, "", ct, asProblem), `{"status": 405}`, "the status"},
		"405 of no path":      {"GET", "/nothing", answer(405, "", ct, asProblem), `{"status": 405}`, "the status"},
		"200 of no path":      {"GET", "/nothing", answer(200, "", ct, asJSON), `{}`, "the status"},
		"empty parameter":     {"GET", "/things/", answer(200, "", ct, asJSON, "X-Id", id), thing, "the status"},
	}
	document := apitest.New(t, []byte(things))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := document.Verify(test.method, test.path, test.res, []byte(test.body))
			if test.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.wrong)
		})
	}
}

// recorder is a test that notes its failures.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed int
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(string, ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	tests := map[string]struct {
		res    *http.Response
		body   string
		fails  bool
		breaks bool
	}{
		"right":            {answer(200, thing, "Content-Type", "application/json", "X-Id", id), thing, false, false},
		"wrong":            {answer(200, "{}", "Content-Type", "application/json", "X-Id", id), "{}", true, false},
		"right stream":     {answer(200, "data: 1\n\n", "Content-Type", "text/event-stream", "X-Id", id), "data: 1\n\n", false, false},
		"wrong stream":     {answer(200, "data: 1\n\n", "Content-Type", "text/event-stream"), "data: 1\n\n", true, false},
		"broken off":       {answer(200, `{"na`, "Content-Type", "application/json", "X-Id", id), `{"na`, false, true},
		"nothing came yet": {nil, "", false, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := &recorder{TB: t}
			if test.breaks && test.res != nil {
				test.res.Body = io.NopCloser(io.MultiReader(test.res.Body, endingWith{broken}))
			}
			transport := apitest.New(rec, []byte(things)).Transport(roundTrip(func(*http.Request) (*http.Response, error) {
				if test.res == nil {
					return nil, broken
				}
				return test.res, nil
			}))
			res, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "/things/1", nil))
			if test.res == nil {
				require.ErrorIs(t, err, broken)
				return
			}
			require.NoError(t, err)
			body, err := io.ReadAll(res.Body)
			require.Equal(t, test.breaks, errors.Is(err, broken))
			require.Equal(t, test.body, string(body), "the body can be read again")
			require.NoError(t, res.Body.Close())
			require.Equal(t, test.fails, rec.failed > 0)
		})
	}
}

type endingWith struct{ err error }

func (e endingWith) Read([]byte) (int, error) { return 0, e.err }

func TestCheckFailsTheTest(t *testing.T) {
	t.Parallel()
	rec := &recorder{TB: t}
	document := apitest.New(t, []byte(things))
	document.Check(rec, httptest.NewRequest(http.MethodDelete, "/things/1", nil), answer(204, ""), nil)
	require.Zero(t, rec.failed)
	document.Check(rec, httptest.NewRequest(http.MethodDelete, "/things/1", nil), answer(200, ""), nil)
	require.Equal(t, 1, rec.failed)
}
