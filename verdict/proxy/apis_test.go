package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/examples/other-apis/apis"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
)

type vendor struct {
	method, submit, body string // {id} in the body is different for each job
	key                  string // header with the idempotency key; empty if the API has none
	job, done            string // job: path ({id}: number of the job); done: text in a response that shows the job's end
}

func (v *vendor) bodyOf(id int) string { return strings.Replace(v.body, "{id}", fmt.Sprint(id), 1) }
func (v *vendor) pathOf(id int) string { return strings.Replace(v.job, "{id}", fmt.Sprint(id), 1) }

var vendors = map[string]vendor{
	"azure": {"PUT", "/subscriptions/s/resourceGroups/g/providers/Example.Things/things/t", `{"n": {id}}`, "",
		"/subscriptions/s/providers/Example.Things/locations/l/operations/{id}?api-version=1", `"Succeeded"`},
	"google": {"POST", "/v2/projects/p/locations/l/jobs/j:run", `{"n": {id}}`, "", "/v2/projects/p/locations/l/operations/{id}",
		`"done": true`},
	"openai": {"POST", "/v1/batches", `{"input_file_id": "f{id}"}`, "", "/v1/batches/batch_{id}", `"completed"`},
	"kubernetes": {"POST", "/apis/batch/v1/namespaces/n/jobs", `{"metadata": {"name": "job-{id}"}}`, "",
		"/apis/batch/v1/namespaces/n/jobs/job-{id}", `"Complete"`},
	"stripe": {"POST", "/v1/payouts", `{"amount": {id}}`, "Idempotency-Key", "/v1/payouts/po_{id}", `"paid"`},
	"github": {job: "/repos/o/r/stats/contributors", done: `"total"`},
}

// Each ready-made description recognizes submissions, reads and final states. A client may repeat a request after a lost response only if
// the API allows it.
func TestReadyMadeDescriptions(t *testing.T) {
	t.Parallel()
	require.Subset(t, api.Names(), []string{"azure", "forgerun", "github", "google", "kubernetes", "openai", "stripe"})
	for name, v := range vendors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, name, apis.Handler())
			id := b.session(`{"rules": ["outcome-learned", "stop-at-end", "idempotency-key", "same-body"]}`)
			if v.submit != "" {
				b.faults(nth("submit", 1, fault.Effect{Close: fault.AfterCommit}))
				require.ErrorIs(t, b.do(v.method, v.submit, v.bodyOf(1)).err, io.EOF)
				require.NoError(t, b.do(v.method, v.submit, v.bodyOf(1)).err)
				require.NoError(t, b.do(v.method, v.submit, v.bodyOf(2)).err)
			}
			for job := range 3 {
				require.Eventually(t, func() bool {
					a := b.do("GET", v.pathOf(job+1), "")
					return a.err == nil && (strings.Contains(a.text, v.done) || a.StatusCode == http.StatusNotFound)
				}, time.Minute, 50*time.Millisecond)
			}
			_, rules := b.verdict(id)
			require.Equal(t, verdict.OK, rules["stop-at-end"].Status)
			require.Equal(t, v.submit != "", rules["outcome-learned"].Status == verdict.OK)
			safe := v.submit == "" || v.method == "PUT" || name == "kubernetes"
			require.Equal(t, !safe, rules["idempotency-key"].Status.Broken(), "%+v", rules["idempotency-key"])
		})
	}
}
