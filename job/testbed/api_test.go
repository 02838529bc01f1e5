package testbed

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

func TestDocumentsShowEnds(t *testing.T) {
	t.Parallel()
	const one, two = "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002"
	for document, ended := range map[string][]string{
		`{"job_id":"` + one + `","state":"SUCCEEDED","batch_id":"` + two + `"}`:                            {one},
		`{"jobId":"` + one + `","jobStatus":"TIMED_OUT"}`:                                                  {one},
		`{"batch_id":"` + two + `","status":"COMPLETED_WITH_ERRORS","counts":{}}`:                          {two},
		`{"batch_id":"` + two + `","event_name":"batch.completed","job_id":null,"data":{}}`:                {two},
		`{"event_name":"bulk.completed","data":{"bulkId":"` + two + `","state":"DONE"}}`:                   {two},
		`{"bulk_id":"` + one + `","state":"RUNNING","filter":{"batch_id":"` + two + `","state":"FAILED"}}`: nil,
		`{"delivery_id":"` + two + `","job_id":"` + one + `","event_name":"job.running","state":"FAILED"}`: nil,
		`{"delivery_id":"` + two + `","job_id":"` + one + `","event_name":"job.failed","state":"PENDING"}`: {one},
		`{"data":[{"job_id":"` + one + `","event_name":"job.retries_exhausted","next_state":null}]}`:       {one},
	} {
		var x verdict.Exchange
		Shape.Jobs([]byte(document), &x)
		require.Equal(t, ended, x.Final, document)
	}
}
