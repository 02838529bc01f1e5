package apitest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
)

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
	s := apitest.NewStreams(t, []byte(talk))
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
		err := s.Verify(test.path, test.id, test.event, test.data)
		if test.wrong == "" {
			require.NoError(t, err, "%+v", test)
			continue
		}
		require.ErrorContains(t, err, test.wrong, "%+v", test)
	}
}
