package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEndToEndFlow(t *testing.T) {
	s, api, u := newWorking(t, env{"FORGERUN_TIME_SCALE": "0.3"}) // LARGE_OUTPUT takes 2.7 s

	// 1. The client submits a job and receives 202 with its id and address.
	submitted := u.trySubmit(api, execute("LARGE_OUTPUT", `"params":{"format":"csv"}`),
		"Idempotency-Key", "8d0bb8a6", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	require.Equal(t, http.StatusAccepted, submitted.status, submitted.body)
	path := submitted.header.Get("Location")
	require.Equal(t, "/v1/jobs/"+submitted.text("job_id"), path)

	// 2. The client polls the job and opens a stream.
	polled := u.expect(api, http.StatusOK, "GET", path, "")
	require.NotEmpty(t, polled.header.Get("Retry-After"))
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", polled.text("correlation_id"))
	watching := u.stream(api, path+"/events", "")
	require.Equal(t, http.StatusOK, watching.status)
	require.Equal(t, "text/event-stream", watching.header.Get("Content-Type"))

	// 3. The client sees progress on the stream and by polling.
	first := watching.until("job-progress")
	require.Equal(t, []string{"job-created", "job-queued", "job-assigned", "job-running"}, frameNames(first))
	polled = u.call(api, "GET", path, "")
	require.Equal(t, "RUNNING", polled.text("state"), polled.body)
	require.NotNil(t, polled.value("progress.percentage"), polled.body)
	require.NotEmpty(t, polled.text("estimated_completion"))
	rest := watching.rest()

	// 4. The job completes. The last event of the stream is the job's outcome document.
	last := rest[len(rest)-1]
	require.Equal(t, "job-succeeded", last.event)
	require.Equal(t, "COMPLETED", last.text("jobStatus"))
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", last.text("correlationId"))
	done := u.call(api, "GET", path, "")
	require.Equal(t, "SUCCEEDED", done.text("state"), done.body)
	require.Equal(t, "AVAILABLE", done.text("result.state"))
	report := u.call(api, "GET", path+"/report", "")
	require.Equal(t, "SUCCESS", report.text("outcome"), report.body)

	// 5. The client downloads the result and checks it.
	result := u.expect(api, http.StatusOK, "GET", done.text("result.download_url"), "")
	require.Equal(t, done.text("result.media_type"), result.header.Get("Content-Type"))
	require.Len(t, result.body, int(done.value("result.size_bytes").(float64)))
	sum := sha256.Sum256([]byte(result.body))
	require.Equal(t, "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":", result.header.Get("Content-Digest"))

	// 6. The result expires, and the job shows the expiry.
	s.exec(`UPDATE results SET expires_at = clock_timestamp()`)
	eventually(t, "the result expires", func() bool {
		return u.call(api, "GET", path+"/result", "").status == http.StatusGone
	})
	require.Equal(t, "EXPIRED", u.call(api, "GET", path, "").text("result.state"))

	// 7. The client deletes the job.
	u.expect(api, http.StatusNoContent, "DELETE", path, "")
	u.call(api, "GET", path, "").requireProblem(t, http.StatusGone, "RFA_JOB_GONE")
}

// A request can set the number of attempts, the backoff and the failures to retry. The job and its failure show these values. A killed
// worker counts as a failure.
func TestRetriesAsTheRequestSays(t *testing.T) {
	s, api, u := newService(t, quickLease, env{
		"FORGERUN_RETRY_BACKOFF_BASE": "1h", "FORGERUN_RETRY_BACKOFF_MAX": "1h", "FORGERUN_TIME_SCALE": "0.05",
	})
	worker := s.startWorker()
	const list = `{"max_attempts":3,"backoff":{"strategy":"LIST","delays":["1.2s","0s"]}}`
	exhausted := u.submit(api, execute("RETRY_LIMIT_REACHED", `"retry":`+list))
	succeeds := u.submit(api, execute("RETRY_ON_FAIL", `"retry":{"backoff":{"strategy":"CONSTANT","delay":"0s"}}`))
	once := u.submit(api, execute("RETRY_ON_FAIL", `"retry":{"max_attempts":1}`))
	others := u.submit(api, execute("RETRY_ON_FAIL", `"retry":{"codes":["RFA_EXEC_TIMEOUT"],"backoff":{"strategy":"CONSTANT","delay":"0s"}}`))
	asked := u.submit(api, execute("RETRY_ON_FAIL", `"auto_retry":false,"retry":{"backoff":{"strategy":"CONSTANT","delay":"0s"}}`))
	s.await("FAILED", exhausted, once, others, asked)
	s.await("SUCCEEDED", succeeds)

	j := u.get(api, exhausted)
	shown, err := json.Marshal(j.value("retry"))
	require.NoError(t, err)
	require.JSONEq(t, list, string(shown))
	require.InDelta(t, 3, j.value("max_attempts"), 0)
	require.InDelta(t, 3, j.value("attempt"), 0)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM events WHERE job_id = $1 AND event_name = 'job.retries_exhausted'`, exhausted))
	require.GreaterOrEqual(t, s.waitAfter(exhausted, 1), 1200*time.Millisecond)
	require.Equal(t, 2, s.count(`SELECT failure_retry_after FROM reports WHERE job_id = $1 AND attempt = 1`, exhausted), "in whole seconds")
	require.InDelta(t, 1, u.get(api, once).value("attempt"), 0)
	require.InDelta(t, 1, u.get(api, others).value("attempt"), 0, "the service does not retry this failure")
	for _, id := range []string{others, asked} { // the service does not retry these jobs, but the client can
		u.expect(api, http.StatusOK, "POST", "/v1/jobs/"+id+"/retry", "")
	}
	s.await("SUCCEEDED", others, asked)

	running := u.submitAndAwait(api, "RUNNING", execute("RUNS_LONG", `"retry":{"backoff":{"strategy":"CONSTANT","delay":"0s"}}`))
	worker.kill()
	s.startWorker()
	s.awaitCount("the job is retried", 1,
		`SELECT count(*) FROM events WHERE job_id = $1 AND attempt = 2 AND event_name = 'job.running'`, running)
	u.call(api, "POST", "/v1/jobs/"+running+"/cancel", "")
	s.awaitFinal(s.acceptedIDs()...)
	s.checkInvariants()
}

func (s *stack) waitAfter(id string, attempt int) time.Duration {
	s.t.Helper()
	ms := s.count(`SELECT (extract(epoch FROM n.started_at - r.finished_at) * 1000)::int FROM reports r
		JOIN reports n ON n.job_id = r.job_id AND n.attempt = r.attempt + 1 WHERE r.job_id = $1 AND r.attempt = $2`, id, attempt)
	return time.Duration(ms) * time.Millisecond
}

// submitFrom submits jobs from 15 goroutines, n jobs from each, and waits until all have ended.
func (s *stack) submitFrom(u *user, n int, apis ...*proc) []string {
	s.t.Helper()
	const senders = 15
	ids := make([][]string, senders)
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() {
			for range n {
				a := u.trySubmit(apis[i%len(apis)], execute("PAYLOAD_SMALL"))
				if a.err == nil && a.status == 202 {
					ids[i] = append(ids[i], a.text("job_id"))
				}
			}
		})
	}
	all.Wait()
	flat := slices.Concat(ids...)
	require.Len(s.t, flat, senders*n)
	s.awaitFinal(flat...)
	return flat
}

// displaced counts the jobs that started before an older job. `positions` is the largest number of older jobs that one job overtook.
// `distance` is the largest difference in creation time between a job and an older job that it overtook.
func (s *stack) displaced(ids []string) (jobs, positions int, distance time.Duration) {
	s.t.Helper()
	err := s.db.QueryRow(s.ctx(), `
		WITH j AS (SELECT created_at, started_at FROM jobs WHERE job_id = ANY($1::uuid[])),
		d AS (SELECT count(*) AS positions, j.created_at - min(o.created_at) AS distance
			FROM j JOIN j o ON o.created_at < j.created_at AND o.started_at > j.started_at GROUP BY j.created_at, j.started_at)
		SELECT count(*), coalesce(max(positions), 0), coalesce(max(distance), '0') FROM d`, ids).Scan(&jobs, &positions, &distance)
	require.NoError(s.t, err)
	return jobs, positions, distance
}

// notEnqueued counts tasks that the api did not enqueue. The relay enqueues them later, so their jobs may start out of order.
func notEnqueued(api *proc) float64 {
	all := api.scrape()
	total := sum(all, "tasks_ensured_total", "result", "ok")
	for _, result := range []string{"failed", "dropped", "skipped"} {
		total += sum(all, "tasks_enqueued_total", "result", result)
	}
	return total
}

// Section 12 of the contract: jobs are dequeued in creation order. With several api processes, jobs created within a second of each other
// may start in any order. If the relay enqueued some of the jobs, the test submits new jobs and tries again.
// Promise: contract 12a
func TestJobsStartInTheOrderOfTheirCreation(t *testing.T) {
	t.Parallel()
	for processes := 1; processes <= 2; processes++ {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			s := newStack(t, env{"FORGERUN_WORKER_CONCURRENCY": "1"})
			apis := []*proc{s.startLeader()}
			for len(apis) < processes {
				apis = append(apis, s.startAPI())
			}
			s.startWorker()
			u := s.newUser(apis[0])
			passedOver := func() (n float64) {
				for _, api := range apis {
					n += api.metric("submissions_out_of_order_total") + notEnqueued(api)
				}
				return n
			}
			for range 5 {
				before := passedOver()
				jobs, positions, distance := s.displaced(s.submitFrom(u, 8, apis...))
				if passedOver() > before {
					continue
				}
				if processes == 1 {
					require.Zero(t, jobs, "%d jobs started before older ones, by up to %d positions and %v", jobs, positions, distance)
				}
				require.Less(t, distance, time.Second)
				break
			}
			s.checkInvariants()
		})
	}
}
