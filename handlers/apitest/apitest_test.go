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
paths:
  /things/{id}:
    get:
      responses:
        "200":
          description: The thing.
          headers:
            X-Id: { required: true, schema: { type: string, format: uuid } }
          content:
            application/json: { schema: { $ref: "#/components/schemas/Thing" } }
webhooks:
  made:
    post:
      parameters:
        - { name: ce-type, in: header, schema: { enum: [thing.made] } }
        - { name: Digest, in: header, required: true, schema: { type: string } }
      requestBody:
        content:
          application/json: { schema: { $ref: "#/components/schemas/Thing" } }
components:
  schemas:
    Thing:
      type: object
      additionalProperties: false
      properties:
        made: { type: string, format: date-time }
`

func TestFindsUndocumented(t *testing.T) {
	t.Parallel()
	document := apitest.New(t, []byte(things))
	const (
		id      = "0190a1b2-c3d4-7000-8000-000000000001"
		thing   = `{"made": "2030-01-31T12:00:00Z"}`
		unknown = `{"size": 1}`
	)
	header := func(changes ...string) http.Header {
		h := http.Header{"Content-Type": {"application/json"}}
		for i := 0; i < len(changes); i += 2 {
			h.Set(changes[i], changes[i+1])
		}
		return h
	}
	for _, test := range []struct {
		status int
		header http.Header
		body   string
		wrong  string // part of the error; "" if there is none
	}{
		{200, header("X-Id", id), thing, ""},
		{201, header("X-Id", id), thing, "the status is not documented"},
		{200, header("X-Id", id), unknown, "size"},
		{200, header("X-Id", id), `{"made": "yesterday"}`, "date-time"},
		{200, header("X-Id", id, "Etag", `"1"`), thing, "Etag is not documented"},
		{200, header(), thing, "X-Id is missing"},
		{200, header("X-Id", id, "Content-Type", "text/json"), thing, `"text/json" is not documented`},
	} {
		res := &http.Response{StatusCode: test.status, Header: test.header}
		requireSaid(t, test.wrong, document.Verify("GET", "/things/1", res, []byte(test.body)))
	}
	for _, test := range []struct {
		header      http.Header
		body, wrong string
	}{
		{header("Ce-Type", "thing.made", "Digest", "d"), thing, ""},
		{header("Ce-Type", "thing.made"), thing, "Digest is missing"},
		{header("Ce-Type", "thing.made", "Digest", "d"), unknown, "size"},
		{header("Ce-Type", "thing.made", "Digest", "d", "X-Own", "1"), thing, "X-Own is not documented"},
		{header("Ce-Type", "thing.lost", "Digest", "d"), thing, "thing.lost"},
	} {
		requireSaid(t, test.wrong, document.VerifyDelivery(test.header, []byte(test.body)))
	}
}

func requireSaid(t *testing.T, part string, err error) {
	t.Helper()
	if part == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, part)
}
