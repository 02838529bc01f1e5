package client_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

func TestParseDelivery(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind, body string
	}{
		"no CloudEvent": {jsonType, `{}`}, "not JSON": {"application/cloudevents+json", `{`},
		"without an id": {"application/cloudevents+json", `{"type":"job.failed","data":{}}`},
	} {
		require.Error(t, second(client.ParseDelivery(http.Header{"Content-Type": {test.kind}}, []byte(test.body))), name)
	}
	binary := http.Header{"Ce-Id": {"e"}, "Ce-Type": {"t"}, "Ce-Sequence": {"-4"}, "Content-Type": {jsonType}}
	m := must(client.ParseDelivery(binary, []byte(`{}`)))(t)
	require.Zero(t, m.Sequence)
	require.False(t, m.ReceivedAt.IsZero())
	o := must(m.Outcome())(t)
	require.Equal(t, m.ReceivedAt, o.ReceivedAt)
	require.Empty(t, m.WorkKind)
	binary.Set("Ce-Workkind", "SUCCESS_FAST")
	m = must(client.ParseDelivery(binary, []byte(`{}`)))(t)
	require.Equal(t, "SUCCESS_FAST", m.WorkKind)
	m, err := client.ParseDelivery(http.Header{"Content-Type": {"application/cloudevents+json"}},
		[]byte(`{"id":"e","type":"t","workkind":"CPU_BURST","data":{}}`))
	require.NoError(t, err)
	require.Equal(t, "CPU_BURST", m.WorkKind)
	_, err = client.ParseDelivery(binary, []byte(`{`))
	require.Error(t, err)
	// In the structured mode a header does not say anything.
	binary.Set("Content-Type", "application/cloudevents+json")
	require.Error(t, second(client.ParseDelivery(binary, []byte(`{"type":"x","data":{}}`))))
}
