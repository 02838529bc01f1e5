package handlers

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/job"
)

// delivered is a delivery in binary mode, with changes: name, value, ...; "-"
// takes a header away.
func delivered(event string, changes ...string) http.Header {
	h := http.Header{}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "ForgeRun/1", "ce-specversion": "1.0", "ce-id": eventID.String(), "ce-type": event,
		"ce-source": publicURL + "/v1", "ce-subject": "jobs/" + jobID.String(), "ce-time": "2030-01-31T12:00:00.123456Z",
		"webhook-id": deliveryID.String(), "webhook-timestamp": "1896091200", "webhook-signature": "v1,AAAA v1,BBBB=",
		"Content-Digest":  "sha-256=:" + strings.Repeat("A", 43) + "=:",
		"Signature-Input": `sig1=("@method" "@target-uri");created=1;keyid="x"`, "Signature": "sig1=:AAAA=:",
	} {
		h.Set(name, value)
	}
	if strings.HasPrefix(event, "job.") || event == job.EventEmitted {
		h.Set("ce-sequence", "5")
		h.Set("ce-sequencetype", "Integer")
		h.Set("ce-workkind", "SUCCESS_FAST")
	}
	for i := 0; i < len(changes); i += 2 {
		if h.Del(changes[i]); changes[i+1] != "-" {
			h.Set(changes[i], changes[i+1])
		}
	}
	return h
}

// TestDeliveriesAreDescribed holds what receivers get against the document.
func TestDeliveriesAreDescribed(t *testing.T) {
	t.Parallel()
	document := apitest.New(t, docs.OpenAPI)
	bodyOf := func(v any) []byte {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return text
	}
	links := job.Links{PublicURL: publicURL}
	origin, attempts, err := finishedAttempts(t.Context(), clientA, jobID)
	require.NoError(t, err)
	ended := bodyOf(links.Document(origin, attempts[0]))
	batch, err := failedBatch(t.Context(), clientA, batchID)
	require.NoError(t, err)
	structured := func(event string, data []byte) []byte {
		return []byte(`{"specversion":"1.0","id":"` + eventID.String() + `","type":"` + event + `","source":"` + publicURL +
			`/v1","subject":"jobs/` +
			jobID.String() +
			`","time":"2030-01-31T12:00:00Z","sequence":"5","sequencetype":"Integer","workkind":"SUCCESS_FAST",` +
			`"datacontenttype":"application/json","data":` + string(data) +
			`}`)
	}
	inBody := []string{"Content-Type", "application/cloudevents+json", "ce-specversion", "-", "ce-id", "-", "ce-type", "-", "ce-source", "-",
		"ce-subject", "-", "ce-time", "-", "ce-sequence", "-", "ce-sequencetype", "-", "ce-workkind", "-"}
	tests := map[string]struct {
		header http.Header
		body   []byte
		wrong  string // part of what is said; "" for nothing
	}{
		"job":      {delivered(job.EventSucceeded), ended, ""},
		"callback": {delivered(job.EventSucceeded, "webhook-signature", "-"), ended, ""},
		"batch": {delivered(job.EventBatchCompleted, "Content-Type", "application/problem+json", "Content-Language", "en"),
			bodyOf(links.BatchDocument(batch)), ""},
		"test":       {delivered(job.EventWebhookTest), []byte(`{"webhookId":"` + webhookID.String() + `"}`), ""},
		"structured": {delivered("", inBody...), structured(job.EventSucceeded, ended), ""},
		"emitted": {delivered(job.EventEmitted),
			[]byte(`{"instance":"/v1/jobs/x/attempts/1","jobId":"` + jobID.String() +
				`","jobStatus":"PROCESSING","submittedAt":"2030-01-31T12:00:00.123456Z","attempt":1,` +
				`"scenario":{"workKind":"SUCCESS_FAST"},"emitted":{"name":"a","data":[1]}}`), ""},
		"other event":     {delivered("job.progress"), ended, "job.progress"},
		"no digest":       {delivered(job.EventSucceeded, "Content-Digest", "-"), ended, "Content-Digest is missing"},
		"no attribute":    {delivered(job.EventSucceeded, "ce-sequence", "-"), ended, "Ce-Sequence is missing"},
		"no work kind":    {delivered(job.EventSucceeded, "ce-workkind", "-"), ended, "Ce-Workkind is missing"},
		"other language":  {delivered(job.EventSucceeded, "Content-Language", "de"), ended, "Content-Language"},
		"bad id":          {delivered(job.EventSucceeded, "webhook-id", "1"), ended, "uuid"},
		"unknown header":  {delivered(job.EventSucceeded, "X-Own", "1"), ended, "X-Own is not documented"},
		"problem as JSON": {delivered(job.EventBatchCompleted, "Content-Type", "text/json"), ended, "not JSON"},
		"body of another": {delivered(job.EventWebhookTest), ended, "webhookId"},
		"half a body":     {delivered(job.EventSucceeded), ended[:9], "not JSON"},
		"both modes": {delivered(job.EventSucceeded, "Content-Type", "application/cloudevents+json"),
			structured(job.EventSucceeded, ended), "structured mode"},
		"attribute missing": {delivered("", inBody...), []byte(`{"type":"job.failed"}`), "specversion"},
	}
	for name, test := range tests {
		err := document.VerifyDelivery(test.header, test.body)
		if test.wrong == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, test.wrong, name)
	}
}
