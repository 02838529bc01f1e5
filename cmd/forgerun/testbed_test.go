package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var testBed = env{"FORGERUN_TESTBED": "true", "FORGERUN_TIME_SCALE": "1"}

type ran struct{ from, to time.Time }

func (r ran) length() time.Duration { return r.to.Sub(r.from) }

func (u *user) attempts(api *proc, id string) (all []ran) {
	u.s.t.Helper()
	list := parsed[struct {
		Data []struct {
			From time.Time `json:"started_at"`
			To   time.Time `json:"finished_at"`
		}
	}](u.s.t, u.call(api, "GET", "/v1/jobs/"+id+"/attempts", "").body)
	for _, a := range list.Data {
		all = append(all, ran{a.From, a.To})
	}
	return all
}

func custom(behavior string, members ...string) string {
	return execute("CUSTOM", append(members, `"params":{"behavior":`+behavior+`}`)...)
}

func (u *user) emitted(api *proc, id string, attempt float64) (names []string, seqs []float64) {
	u.s.t.Helper()
	events, _ := u.call(api, "GET", "/v1/jobs/"+id+"/events", "").value("data").([]any)
	for _, e := range events {
		event := e.(map[string]any)
		if event["event_name"] == "event.emitted" && event["attempt"] == attempt {
			data := event["data"].(map[string]any)
			text, err := json.Marshal(data["data"])
			require.NoError(u.s.t, err)
			names, seqs = append(names, data["name"].(string)+" "+string(text)), append(seqs, event["seq"].(float64))
		}
	}
	return names, seqs
}

const failsOnce = `{"seed":7,"duration":"300ms","jitter":"100ms","steps":3,
	"failures":[{"attempts":[1],"after":"100ms","problem":{"type":"https://example.com/problems/out-of-stock","title":"Out of stock",
		"status":409,"detail":"Item <17> is out of stock.","retryAfter":2,"stage":"conversion","item":17,"shelf":{"row":"b"}}}],
	"emit":[{"name":"late","after":"200ms"},{"name":"early","data":{"n":1},"after":"50ms"},{"name":"early.too","data":[2],"after":"50ms"}],
	"result":{"media_type":"text/x-note; charset=utf-8","body":"Shipped: <ü> & \"quoted\"\n"},
	"cpu":0.2,"memory_bytes":1048576,"io_bytes":200000}`

func TestCustomJobFollowsItsRequest(t *testing.T) {
	s, api, u := newDelivering(t, testBed)
	receiver := u.receive(api, nil)

	body := custom(failsOnce, `"auto_retry":true`)
	first := u.submitAndAwait(api, "SUCCEEDED", body)

	a := u.expect(api, http.StatusOK, "GET", "/v1/jobs/"+first+"/attempts/1", "", "Accept", "application/problem+json")
	for path, want := range map[string]any{
		"type": "https://example.com/problems/out-of-stock", "title": "Out of stock", "status": 409.0, "detail": "Item <17> is out of stock.",
		"retryable": true, "retryAfter": 2.0, "processingStage": "conversion", "item": 17.0, "shelf.row": "b", "jobStatus": "FAILED",
		"scenario.workKind": "CUSTOM", "scenario.expectedOutcome": "FAILED", "code": "RFA_DEPENDENCY_TIMEOUT",
	} {
		require.Equal(t, want, a.value(path), "%s: %s", path, a.body)
	}
	require.Contains(t, a.body, "Item <17>", "not escaped")
	frames, seen := u.stream(api, "/v1/jobs/"+first+"/events", ""), false
	for f, ok := frames.next(); ok; f, ok = frames.next() {
		seen = seen || strings.Contains(f.data, `"item":17`)
	}
	require.True(t, seen, "the stream has the same document")
	s.awaitDeliveries()
	failed := receiver.await("the failure", func(d received) bool { return d.job() == first && d.event() == "job.failed" })
	require.Contains(t, failed.body, `"item":17`)
	require.Contains(t, eventNames(receiver.of(first)), "event.emitted")

	attempts := u.attempts(api, first)
	wait := attempts[1].from.Sub(attempts[0].to)
	require.GreaterOrEqual(t, wait, 2*time.Second, "the failure's retryAfter and not the backoff, which is at most 50 ms")
	require.GreaterOrEqual(t, attempts[0].length(), 100*time.Millisecond)
	names, seqs := u.emitted(api, first, 1)
	require.Equal(t, []string{`early {"n":1}`, `early.too [2]`}, names, "the events before the failure, in order")
	require.IsIncreasing(t, seqs)
	names, _ = u.emitted(api, first, 2)
	require.Equal(t, []string{`early {"n":1}`, `early.too [2]`, `late null`}, names)

	result := u.call(api, "GET", "/v1/jobs/"+first+"/result", "")
	require.Equal(t, "Shipped: <ü> & \"quoted\"\n", result.body)
	require.Equal(t, "text/x-note; charset=utf-8", result.header.Get("Content-Type"))

	s.checkInvariants()
}

func TestCustomJobOfAnotherWorker(t *testing.T) {
	s, api, u := newService(t, testBed, quickLease)
	first := s.startWorker()
	id := u.submit(api, custom(`{"duration":"2s","emit":[{"name":"begun"}],"result":{"body":"done"},"steps":1}`, `"auto_retry":true`))
	eventually(t, "the job has begun", func() bool {
		names, _ := u.emitted(api, id, 1)
		return len(names) == 1
	})
	first.kill()
	s.startWorker()
	s.await("SUCCEEDED", id)
	names, _ := u.emitted(api, id, 2)
	require.Equal(t, []string{"begun null"}, names)
	require.Equal(t, "done", u.call(api, "GET", "/v1/jobs/"+id+"/result", "").body)
	s.checkInvariants()
}
