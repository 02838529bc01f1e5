package client_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

// accepting answers every request with a 202, and costs next to nothing.
type accepting struct{ header http.Header }

var receipt = []byte(`{"job_id":"0190a1b2-c3d4-7000-8000-000000000001","state":"QUEUED","created_at":"2030-01-31T12:00:00.000000Z"}`)

func (a *accepting) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	if err == nil {
		err = r.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusAccepted, Header: a.header, Request: r,
		Body: io.NopCloser(bytes.NewReader(receipt)), ContentLength: int64(len(receipt)),
	}, err
}

// BenchmarkSubmit is what the client itself costs: JSON in both directions,
// the request and its headers, but no network.
func BenchmarkSubmit(b *testing.B) {
	transport := &accepting{header: http.Header{
		"Content-Type": {"application/json"}, "X-Request-Id": {"0190a1b2-c3d4-7000-8000-000000000002"},
		"Location": {"/v1/jobs/0190a1b2-c3d4-7000-8000-000000000001"},
	}}
	for name, timeout := range map[string]time.Duration{"timeout": 0, "no timeout": -1} {
		b.Run(name, func(b *testing.B) {
			c, err := client.New(client.Config{
				URL: "http://forgerun.example", Key: "frk_key", MaxTries: 1, Timeout: timeout, HTTP: &http.Client{Transport: transport},
			})
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				accepted, err := c.Submit(b.Context(), client.JobRequest{
					Type: client.Execute, WorkKind: "SUCCESS_FAST", CorrelationID: "run.1",
				}, client.IdempotencyKey("run-1"))
				if err != nil || accepted.JobID == "" {
					b.Fatal(accepted, err)
				}
			}
		})
	}
}
