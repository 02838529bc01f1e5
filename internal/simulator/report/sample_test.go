package report

import (
	"fmt"
	"math"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

var faultKinds = []string{"kill", "stop", "term", "flush", "redis", "postgres", "redis-pause", "cut", "slow"}

func sampleRun(took time.Duration, perSecond float64, faults int) Run {
	c := &clock{began}
	r := newRecorder(began, c.read)
	r.Stage("load", nil)
	var open []time.Time // planned send times of unfinished jobs
	step, sent, injected := max(took/1000, 100*time.Millisecond), 0, 0
	for at := time.Duration(0); at < took; at += step {
		c.now = began.Add(at)
		share := at.Seconds() / took.Seconds()
		r.Workers(2 + int(3*share))
		for ; injected < faults && float64(injected) <= share*float64(faults); injected++ {
			k, lasts := injected%len(faultKinds), time.Duration(0)
			if k%3 == 1 {
				lasts = time.Duration(injected%3000) * time.Millisecond
			}
			r.Fault(faultKinds[k], fmt.Sprint("worker ", k%4), c.now, c.now.Add(lasts), 1+k/7)
		}
		for ; share < 0.9 && float64(sent) < at.Seconds()*perSecond; sent++ {
			latency := time.Duration(math.Exp(float64(sent%100)/20) * float64(time.Millisecond))
			class := []string{Accepted, Refused, Failed, Unanswered}[max(0, sent%200-196)]
			r.Sent(1)
			r.Answered(latency, class)
			if class == Accepted {
				r.Moved("", "QUEUED")
				open = append(open, c.now)
			}
		}
		for len(open) > 3 {
			end := []string{"SUCCEEDED", "SUCCEEDED", "FAILED", "CANCELED"}[len(open)%4]
			r.Moved("QUEUED", "RUNNING")
			r.Moved("RUNNING", end)
			r.Finished(c.now.Sub(open[0]), end)
			r.Delivered(len(open)%10 > 0)
			open = open[1:]
		}
	}
	c.now = began.Add(took)
	return described(r.Run())
}

func described(run Run) Run {
	run.Scenario, run.Description, run.Seed = "soak", "A mix of all kinds at a steady rate, with every fault that there is.", 42
	run.Text = "name: soak\nduration: 10m\narrival:\n  rate: 40\n"
	run.Command = "forgerun simulate run soak --chaos kill=30s,stop=60s --seed 42"
	run.Service = map[string]string{"Workers": "2..4", "Time scale": "0.1", "Lease": "2s"}
	run.Machine = map[string]string{"System": "linux/amd64", "Processors": "2"}
	run.Expectations = []Expectation{
		{"submit p99", "at most 200 ms", "61.2 ms", true, false}, {"refused", "at most 2 %", "0.41 %", true, false},
	}
	run.WorkKinds = []WorkKind{
		{Kind: "DUPLICATE_SUBMIT_DIFFERENT_KEY", Expected: "SUCCEEDED", Got: "SUCCEEDED", Jobs: 2, Attempts: 1, DurationMS: 2000},
		{Kind: "WEBHOOK_5XX", Expected: "SUCCEEDED, delivered on retry", Got: "SUCCEEDED, delivery FAILED", Findings: []string{"one", "two"}},
	}
	run.Verdict = goodVerdict()
	return run
}

func goodVerdict() *judge.Verdict {
	v := &judge.Verdict{Jobs: 23_456, Tickets: 23_999, Facts: 1_234_567}
	for i, invariant := range judge.Invariants {
		v.Invariants = append(v.Invariants, judge.Result{Invariant: invariant, Result: judge.Held, Checked: int64(1000 * (i + 1))})
	}
	last := &v.Invariants[len(v.Invariants)-1]
	last.Result, last.Checked, last.Skipped = judge.Skipped, 0, "no database URL was given"
	return v
}

func violatedVerdict(n int) *judge.Verdict {
	v := goodVerdict()
	v.ViolationCount = int64(n)
	for i := range n {
		v.Invariants[i%3].Result = judge.Violated
		v.Invariants[i%3].Violations++
		one := judge.Violation{
			Invariant: judge.Invariants[i%3].Key, Job: fmt.Sprintf("0190a1b2-c3d4-7000-8000-%012d", i), Ticket: int64(i + 1),
			What: "the job ended twice, as SUCCEEDED and as FAILED",
		}
		if i < 100 {
			for k := range 6 {
				one.History = append(one.History, fmt.Sprintf(`%02d:00:00.000000  {"event":{"name":"job.running"}}`, k))
			}
		}
		v.Violations = append(v.Violations, one)
	}
	return v
}

func totalOf(values []int64) int64 {
	var n int64
	for _, v := range values {
		n += v
	}
	return n
}
