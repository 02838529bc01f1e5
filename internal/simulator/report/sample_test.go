package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// clock is set by hand.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

// recorded is a run that took so long, with jobs at a rate and faults spread over
// it, as a real one would look.
func sampleRun(took time.Duration, perSecond float64, faults int) Run {
	c := &clock{began}
	r := newRecorder(began, c.read)
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []string{"kill", "stop", "term", "flush", "redis", "postgres", "redis-pause", "cut", "slow"}
	r.Stage("load")
	r.Workers(2)
	var finishes []func(time.Time)
	nextFault := 0
	step := 100 * time.Millisecond
	if took > 2*time.Hour {
		step = 10 * time.Second
	}
	for at := time.Duration(0); at < took; at += step {
		c.now = began.Add(at)
		share := at.Seconds() / took.Seconds()
		r.Workers(2 + int(3*share))
		for nextFault < faults && float64(nextFault) <= share*float64(faults) {
			k := random.IntN(len(kinds))
			lasts := time.Duration(0)
			if k == 1 || k == 6 || k == 8 {
				lasts = time.Duration(random.IntN(3000)) * time.Millisecond
			}
			r.Fault(kinds[k], fmt.Sprint("worker ", random.IntN(4)), c.now, c.now.Add(lasts), 1+random.IntN(3)*(k/7))
			nextFault++
		}
		if share > 0.93 && len(r.stages) < 2 {
			r.Stage("drain")
		}
		due := perSecond * (1 + 0.4*math.Sin(9*share))
		if share > 0.93 {
			due = 0
		}
		for range int(due*step.Seconds() + random.Float64()) {
			intended := c.now
			latency := time.Duration(math.Exp(random.NormFloat64()*0.7+1.6)*float64(time.Millisecond)) +
				time.Duration(60*max(0, random.Float64()-0.99)*100*float64(time.Millisecond))
			class := Accepted
			if random.Float64() < 0.01 {
				class = []string{Refused, Failed, Unanswered}[random.IntN(3)]
			}
			r.Sent(intended)
			r.Answered(intended, intended.Add(latency), class)
			if class != Accepted {
				continue
			}
			r.Moved("", "QUEUED")
			state := "QUEUED"
			end := []string{"SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "FAILED", "CANCELED"}[random.IntN(5)]
			finishes = append(finishes, func(now time.Time) {
				if state == "QUEUED" {
					r.Moved("QUEUED", "RUNNING")
					state = "RUNNING"
				}
				r.Moved(state, end)
				r.Finished(intended, now, end)
				r.Delivered(now, random.Float64() < 0.9)
			})
		}
		done := int(float64(len(finishes)) * random.Float64() * 0.2)
		if share > 0.93 {
			done = max(done, min(len(finishes), 3))
		}
		for _, finish := range finishes[:done] {
			finish(c.now)
		}
		finishes = finishes[done:]
		if len(finishes) > 20 && random.Float64() < 0.5 {
			r.Moved("QUEUED", "RUNNING")
			r.Moved("RUNNING", "QUEUED")
		}
	}
	c.now = began.Add(took)
	run := r.Run()
	run.Scenario, run.Description, run.Seed = "soak", "A mix of all kinds at a steady rate, with every fault that there is.", 42
	run.Text = "name: soak\nduration: 10m\narrival:\n  rate: 40\n"
	run.Command = "simulator run soak --chaos kill=30s,stop=60s --seed 42"
	run.Service = []Setting{{"Workers", "2..4"}, {"Time scale", "0.1"}, {"Lease", "2s"}}
	run.Machine = []Setting{{"Machine", "linux/amd64, 2 cores, 8 GB"}}
	run.Expectations = []Expectation{{"submit p99", "at most 200 ms", "61.2 ms", true}, {"refused", "at most 2 %", "0.41 %", true}}
	run.Verdict = goodVerdict()
	return run
}

func goodVerdict() *judge.Verdict {
	v := &judge.Verdict{Jobs: 23_456, Tickets: 23_999, Facts: 1_234_567, Checked: map[string]int64{}, Skipped: map[string]string{}}
	for i, invariant := range judge.Invariants {
		if i+1 == len(judge.Invariants) {
			v.Skipped[invariant.Key] = "no database URL was given"
			continue
		}
		v.Checked[invariant.Key] = int64(1000 * (i + 1))
	}
	return v
}

// violatedVerdict has so many violations, the first 100 with a history.
func violatedVerdict(n int) *judge.Verdict {
	v := goodVerdict()
	v.ViolationCount = int64(n)
	for i := range min(n, 1000) {
		one := judge.Violation{
			Invariant: judge.Invariants[i%3].Key, Job: fmt.Sprintf("0190a1b2-c3d4-7000-8000-%012d", i), Ticket: int64(i + 1),
			What: "the job ended twice, as SUCCEEDED and as FAILED",
		}
		if i < 100 {
			for k := range 6 {
				one.History = append(one.History, history.Fact{
					At: began.Add(time.Duration(k) * time.Second), Kind: history.Streamed, Ticket: one.Ticket, Job: one.Job,
					Event: &history.Event{Seq: k + 1, Name: "job.running", Next: "RUNNING"},
				})
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
