package apitest_test

import (
	"net/http"
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
webhooks:
  made:
    post:
      parameters:
        - { name: ce-type, in: header, schema: { enum: [thing.made] } }
        - { name: ce-id, in: header, schema: { type: string, format: uuid } }
        - { name: Digest, in: header, required: true, schema: { type: string } }
      requestBody:
        content:
          application/json: { schema: { $ref: "#/components/schemas/Thing" } }
          application/cloudevents+json: { schema: { type: object, required: [specversion] } }
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

// changed gives headers with changes: name, value, ...; "-" takes one away.
func changed(h http.Header, changes ...string) http.Header {
	for i := 0; i < len(changes); i += 2 {
		if h.Del(changes[i]); changes[i+1] != "-" {
			h.Set(changes[i], changes[i+1])
		}
	}
	return h
}

// requireSaid holds an error against a part of it; "" is for none.
func requireSaid(t *testing.T, wrong string, err error, test any) {
	t.Helper()
	if wrong == "" {
		require.NoError(t, err, "%+v", test)
		return
	}
	require.ErrorContains(t, err, wrong, "%+v", test)
}

func TestVerify(t *testing.T) {
	t.Parallel()
	header := func(changes ...string) http.Header {
		return changed(http.Header{"Content-Type": {"application/json"}, "X-Id": {id}}, changes...)
	}
	none, problem := http.Header{}, http.Header{"Content-Type": {"application/problem+json"}}
	of := func(members string) string { return `{` + members + `}` }
	document := apitest.New(t, []byte(things))
	for _, test := range []struct {
		method, path string
		status       int
		header       http.Header
		body         string
		wrong        string // part of what is said; "" for nothing
	}{
		{"GET", "/things/1", 200, header("Retry-After", "5", "Date", "now"), thing, ""}, {"HEAD", "/things/1", 200, header(), "", ""},
		{"GET", "/things/1", 200, header("Content-Type", "text/event-stream"), "data: 1\n\n", ""}, {"GET", "/things/1", 304, none, "", ""},
		{"DELETE", "/things/1", 204, none, "", ""}, {"GET", "/things/1", 404, problem, of(`"status": 404`), ""},
		{"GET", "/things/all", 200, header("Content-Type", "image/png", "X-Id", "-"), "PNG", ""}, // the plain path wins
		{"GET", "/nothing", 404, problem, of(`"status": 404`), ""}, {"PUT", "/things/1", 405, problem, of(`"status": 405`), ""},
		{"PUT", "/nothing", 400, problem, of(`"status": 400`), ""},
		// Bodies.
		{"GET", "/things/1", 200, header(), of(`"name": "a", "made": "2030-01-31T12:00:00Z", "color": 1`), "color"},
		{"GET", "/things/1", 200, header(), of(`"name": "a"`), "made"},
		{"GET", "/things/1", 200, header(), of(`"name": "a", "made": null`), "/made"},
		{"GET", "/things/1", 200, header(), of(`"name": 1, "made": "2030-01-31T12:00:00Z"`), "/name"},
		{"GET", "/things/1", 200, header(), of(`"name": "a", "made": "yesterday"`), "date-time"},
		{"GET", "/things/1", 200, header(), `{"name": `, "not JSON"}, {"GET", "/things/1", 200, header(), thing + thing, "not JSON"},
		{"GET", "/things/1", 200, header(), "", "not JSON"}, {"DELETE", "/things/1", 204, none, "{}", "has a body"},
		{"HEAD", "/things/1", 200, header(), thing, "has a body"}, {"GET", "/things/1", 404, problem, of(`"status": 400`), "status 400"},
		// Statuses and headers.
		{"GET", "/things/1", 201, header(), thing, "the status"}, {"DELETE", "/things/1", 404, problem, of(`"status": 404`), "the status"},
		{"GET", "/things/1", 405, problem, of(`"status": 405`), "the status"},
		{"GET", "/nothing", 405, problem, of(`"status": 405`), "the status"},
		{"GET", "/nothing", 200, header("X-Id", "-"), "{}", "the status"}, {"GET", "/things/", 200, header(), thing, "the status"},
		{"GET", "/things/1", 200, header("Content-Type", "text/plain"), thing, "text/plain"},
		{"GET", "/things/1", 200, header("Content-Type", "-"), thing, "media type"},
		{"GET", "/things/1", 200, header("X-Id", "-"), thing, "X-Id is missing"},
		{"GET", "/things/1", 200, header("X-Id", "1"), thing, "uuid"},
		{"GET", "/things/1", 200, header("Retry-After", "soon"), thing, "Retry-After"},
		{"GET", "/things/1", 200, header("Retry-After", "0"), thing, "Retry-After"},
		{"GET", "/things/1", 200, header("Etag", `"1"`), thing, "Etag"},
	} {
		err := document.Verify(test.method, test.path, &http.Response{StatusCode: test.status, Header: test.header}, []byte(test.body))
		requireSaid(t, test.wrong, err, test)
	}
}

func TestVerifyDelivery(t *testing.T) {
	t.Parallel()
	document := apitest.New(t, []byte(things))
	const structured, event = "application/cloudevents+json", `{"specversion": "1.0", "type": "thing.made"}`
	inBody := []string{"Content-Type", structured, "Ce-Type", "-", "Ce-Id", "-"}
	for _, test := range []struct {
		changes     []string
		body, wrong string
	}{
		{nil, thing, ""}, {inBody, event, ""}, {[]string{"Ce-Type", "thing.lost"}, thing, "thing.lost"}, {nil, "{", "not JSON"},
		{nil, "{}", "missing propert"}, {[]string{"Digest", "-"}, thing, "Digest is missing"},
		{[]string{"Ce-Id", "-"}, thing, "Ce-Id is missing"},
		{[]string{"Ce-Id", "1"}, thing, "uuid"}, {[]string{"X-Own", "1"}, thing, "X-Own is not documented"},
		{[]string{"Content-Type", "text/json"}, thing, "not JSON"}, {[]string{"Content-Type", structured}, event, "Ce-Id is not documented"},
		{[]string{"Content-Type", "application/problem+json"}, thing, "is not documented"}, {inBody, `{"type": "thing.made"}`, "specversion"},
	} {
		h := http.Header{"Content-Type": {"application/json"}, "Ce-Type": {"thing.made"}, "Ce-Id": {id}, "Digest": {"d"}}
		requireSaid(t, test.wrong, document.VerifyDelivery(changed(h, test.changes...), []byte(test.body)), test)
	}
}

const talk = `
asyncapi: 3.0.0
channels:
  one:
    address: /things/{id}/events
    messages:
      made: { $ref: "#/components/messages/made" }
      moving: { $ref: "#/components/messages/moving" }
  all:
    address: /events
    messages:
      made: { $ref: "#/components/messages/made" }
components:
  messageTraits:
    kept: { headers: { type: object, required: [id, event] } }
    passing: { headers: { type: object, required: [event], additionalProperties: false, properties: { event: {} } } }
  messages:
    made:
      traits: [{ $ref: "#/components/messageTraits/kept" }]
      payload: { $ref: "#/components/schemas/Thing" }
    moving:
      traits: [{ $ref: "#/components/messageTraits/passing" }]
      payload: { type: object }
  schemas:
    Thing: { type: object, required: [n], additionalProperties: false, properties: { n: { type: integer } } }
`

func TestFrames(t *testing.T) {
	t.Parallel()
	s := apitest.New(t, []byte(talk))
	for _, test := range []struct{ path, id, event, data, wrong string }{
		{"/things/7/events", "1", "made", `{"n": 1}`, ""},
		{"/events", "1", "made", `{"n": 1}`, ""},
		{"/things/7/events", "", "moving", `{}`, ""},
		{"/things/7/events", "1", "made", `{"n": "1"}`, "got string"},
		{"/things/7/events", "1", "made", `{"n": 1, "m": 2}`, "additional properties 'm'"},
		{"/things/7/events", "1", "made", `{"n": 1`, "not JSON"},
		{"/things/7/events", "", "made", `{"n": 1}`, "missing property 'id'"},
		{"/things/7/events", "1", "moving", `{}`, "additional properties 'id'"},
		{"/things/7/events", "1", "lost", `{}`, `no message "lost"`},
		{"/events", "", "moving", `{}`, `no message "moving"`},
		{"/nothing", "1", "made", `{"n": 1}`, "no stream is documented"},
	} {
		requireSaid(t, test.wrong, s.VerifyFrame(test.path, test.id, test.event, test.data), test)
	}
}
