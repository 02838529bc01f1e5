package verdict_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

const (
	largeJobs  = 1000
	largeSteps = verdict.MaxExchanges / largeJobs
)

// large returns the exchanges of a session with a thousand jobs: submissions repeated after lost answers, polls with ETags, lists and
// streams. Like exchanges read from the network, they share no strings.
func large(add func(*verdict.Exchange)) *verdict.Record {
	draw := rand.New(rand.NewPCG(1, 2))
	t := newTrace()
	text := fmt.Sprintf
	jobID := func(n int) string { return text("01930000-0000-7000-8000-%012d", n) }
	for step := range largeSteps {
		for n := range largeJobs {
			id, x := jobID(n), verdict.Exchange{}
			switch kind := draw.IntN(100); {
			case step < 2: // some retry after a lost answer; others submit twice
				x = submit(0, func(x *verdict.Exchange) {
					x.Key, x.Body, x.Correlation = text("key-%032d", n), text("body-%032d", n), text("order-%d", n)
					x.Made, x.Job, x.Shown = id, id, []string{id}
				})
				if step == 0 && n%10 == 0 {
					lost(&x)
				}
			case kind < 5:
				x = list(0)
				x.Query, x.Shown = text("limit=20&state=%d", draw.IntN(9)), nil
				for range 20 {
					x.Shown = append(x.Shown, jobID(draw.IntN(largeJobs)))
				}
			case kind < 6:
				x = stream(text("%d", step), text("e%d-%d", step, n), text("f%d-%d", step, n))
				x.Path, x.Job, x.Shown = text("/v1/jobs/%s/events", id), id, []string{id}
				x.Stream.Cut = kind == 5
			default:
				x = poll(0, conditional)
				x.Path, x.Job, x.Shown = "/v1/jobs/"+id, id, []string{id}
				x.ETag, x.IfNoneMatch = text(`"%d"`, step/20), text(`"%d"`, (step-1)/20)
				if x.ETag == x.IfNoneMatch {
					x.Status, x.Shown = 304, nil
				}
				if kind == 99 {
					unavailable(&x)
				}
				if step == largeSteps-1 {
					final(&x)
				}
			}
			t.wait(time.Millisecond)
			x.Start, x.End, x.Connection = t.now, t.now.Add(4*time.Millisecond), uint64(n%8)
			x.KeyID, x.Accept = text("k%d", 1), text("application/%s", "json")
			add(&x)
		}
	}
	for n := range largeJobs {
		t.Runs = append(t.Runs, verdict.Run{ID: jobID(n), State: "SUCCEEDED", Finished: t.now})
		for i := range 6 {
			t.Attempts = append(t.Attempts, verdict.Attempt{
				DeliveryID: jobID(10*n + i), JobID: jobID(n), Number: 1, Event: "job.running", Final: i == 5,
				At: begin.Add(time.Duration(6*n+i) * time.Second), Took: time.Second, Status: 200,
			})
		}
	}
	ended := t.now.Add(time.Second)
	t.Now, t.Session.EndedAt, t.Session.Recorded = ended, fault.TimeOf(&ended), verdict.MaxExchanges
	return &t.Record
}

// BenchmarkOf judges a session with the maximum number of requests, about a thousand jobs. It also measures the session's memory.
func BenchmarkOf(b *testing.B) {
	before := heap()
	log := &verdict.Log{}
	record := large(func(x *verdict.Exchange) { log.Add(x) })
	record.Log = log
	kept := heap()
	b.ReportAllocs()
	var v verdict.Verdict
	for b.Loop() {
		v = verdict.Of(record)
	}
	b.ReportMetric(float64(kept-before)/(1<<20), "MiB-kept")
	b.ReportMetric(float64(heap()-before)/(1<<20), "MiB-judged")
	require.Len(b, v.Results, len(verdict.IDs()))
	runtime.KeepAlive(log)
}

// heap returns the memory in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
