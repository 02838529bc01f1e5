package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// The program in internal/bench/peers has copies of these numbers.
const (
	peerJobs       = 20_000 // in each phase
	peerProducers  = 32
	peerWorkers    = 100
	batchSize      = 1000
	batchProducers = 4

	batchFigure = "Accepted in batches of 1,000, jobs/s"
	drainFigure = "Finished of a backlog, jobs/s"
)

// peer measures River or asynq. Each element of `runs` lists phases, such as "insert drain". For each element, the program runs the
// phases in order, on empty stores.
func (got sample) peer(l *lab, program, name string, runs ...string) {
	for _, phases := range runs {
		check(l.attempt(func() {
			address := map[string]string{"river": l.database().url, "asynq": l.servers.Redis.URL()}[name]
			c := exec.CommandContext(l.ctx, program, append([]string{name, address}, strings.Fields(phases)...)...)
			var stdout, stderr bytes.Buffer
			c.Stdout, c.Stderr = &stdout, &stderr
			used := system{lab: l}.while(func() {
				if err := c.Run(); err != nil {
					check(fmt.Errorf("%s: %w: %s", phases, err, &stderr))
				}
			})
			own := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
			check(got.readPeer(&stdout, used.service()+own.Seconds()))
		}))
	}
}

// readPeer reads the program's output, one line per phase. `cpu` is the CPU time in seconds of the program, Postgres and Redis in the phase
// "sustained".
func (got sample) readPeer(out io.Reader, cpu float64) error {
	names := map[string]string{"insert": acceptedFigure, "batch": batchFigure, "drain": drainFigure, "sustained": sustainedFigure}
	for lines := json.NewDecoder(out); lines.More(); {
		var m struct {
			Phase      string
			Jobs, Took float64
		}
		if err := lines.Decode(&m); err != nil {
			return err
		}
		if got[names[m.Phase]] = m.Jobs / m.Took; m.Phase == "sustained" {
			got[cpuFigure] = cpu / (m.Jobs / 1000)
		}
	}
	return nil
}

// The measured CPU time includes the load generator, because the programs of River and asynq also generate their own load.
func (got sample) peerJobs(l *lab, s service) {
	s.slots = peerWorkers
	l.phase(s, func(sys system) {
		got[acceptedFigure] = submitPeerJobs(sys.ctx, sys.target)
		sys.start("worker", "")
		sys.db.awaitFinished(time.Time{}, peerJobs)
		got[drainFigure] = peerJobs / sys.db.number(`SELECT extract(epoch FROM max(finished_at) - min(assigned_at)) FROM jobs`)
	})
	l.phase(s, func(sys system) {
		sys.start("worker", "")
		used := sys.while(func() {
			submitPeerJobs(sys.ctx, sys.target)
			sys.db.awaitFinished(time.Time{}, peerJobs)
		})
		got[sustainedFigure] = peerJobs /
			sys.db.number(`SELECT extract(epoch FROM max(finished_at) - $1::timestamptz) FROM jobs`, used.from)
		got[cpuFigure] = (used.service() + used.of("generator")) / (peerJobs / 1000)
	})
	l.phase(s, func(sys system) {
		sys.url += "/batch"
		sys.body = []byte(`{"jobs":[` + strings.Repeat(","+string(peerJob), batchSize)[1:] + `]}`)
		got[batchFigure] = sys.submit(closed{clients: batchProducers, jobs: peerJobs / batchSize}).rate() * batchSize
	})
}

// peerJob has the same payload size as the jobs of River and asynq: 150 bytes.
var peerJob = []byte(`{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL","params":{"text":"` + strings.Repeat("x", 150) + `"}}`)

func submitPeerJobs(ctx context.Context, to target) (perSecond float64) {
	to.body = peerJob
	return must(closed{clients: peerProducers, jobs: peerJobs}.submit(ctx, to)).rate()
}
