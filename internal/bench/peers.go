package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// The task of every compared system, as in internal/bench/peers.
const (
	peerJobs       = 20_000 // in each phase
	peerProducers  = 32
	peerWorkers    = 100
	batchSize      = 1000
	batchProducers = 4

	batchFigure = "Accepted in batches of 1,000, jobs/s"
	drainFigure = "Finished of a backlog, jobs/s"
)

// peer takes River or asynq through phases. Those in one string follow each other on the same stores.
func (got sample) peer(ctx context.Context, l *lab, program, name string, runs ...string) error {
	for _, phases := range runs {
		err := l.withDatabase(ctx, func(d *database) error {
			address := map[string]string{"river": d.url, "asynq": l.servers.Redis.URL()}[name]
			c := exec.CommandContext(ctx, program, append([]string{name, address}, strings.Fields(phases)...)...) //nolint:gosec // our own
			var stderr bytes.Buffer
			c.Stderr = &stderr
			var out []byte
			used, err := system{lab: l}.while(func() (err error) { out, err = c.Output(); return err })
			if err != nil {
				return fmt.Errorf("%s: %w: %s", phases, err, stderr.Bytes())
			}
			return got.readPeer(out, used.service())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readPeer reads the program's output, one line per phase. CPU is measured in the phase "sustained", servers included.
func (got sample) readPeer(out []byte, servers float64) error {
	names := map[string]string{"insert": acceptedFigure, "batch": batchFigure, "drain": drainFigure, "sustained": sustainedFigure}
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var m struct {
			Phase           string
			Jobs, Took, CPU float64
		}
		if err := lines.Decode(&m); err != nil {
			return err
		}
		if got[names[m.Phase]] = m.Jobs / m.Took; m.Phase == "sustained" {
			got[cpuFigure] = (m.CPU + servers) / (m.Jobs / 1000)
		}
	}
	return nil
}

// peerJobs takes the service through the phases. CPU includes the load generator, as that of the peers does.
func (got sample) peerJobs(ctx context.Context, l *lab, s service) error {
	s.slots = peerWorkers
	for _, phase := range []func(context.Context, system) error{got.backlog, got.throughPeerJobs, got.batches} {
		if err := l.phase(ctx, s, func(sys system) error { return phase(ctx, sys) }); err != nil {
			return err
		}
	}
	return nil
}

func (got sample) backlog(ctx context.Context, sys system) (err error) {
	if got[acceptedFigure], err = submitPeerJobs(ctx, sys.target); err != nil {
		return err
	}
	return sys.withWorker(ctx, func() error {
		if err := sys.db.allFinished(ctx, time.Time{}, peerJobs); err != nil {
			return err
		}
		took, err := sys.db.number(ctx, `SELECT extract(epoch FROM max(finished_at) - min(assigned_at)) FROM jobs`)
		got[drainFigure] = peerJobs / took
		return err
	})
}

func (got sample) throughPeerJobs(ctx context.Context, sys system) error {
	return sys.withWorker(ctx, func() error {
		used, err := sys.while(func() error {
			began := time.Now()
			if _, err := submitPeerJobs(ctx, sys.target); err != nil {
				return err
			}
			return sys.db.allFinished(ctx, began, peerJobs)
		})
		if err != nil {
			return err
		}
		took, err := sys.db.number(ctx, `SELECT extract(epoch FROM max(finished_at) - $1::timestamptz) FROM jobs`, used.from)
		got[sustainedFigure], got[cpuFigure] = peerJobs/took, (used.service()+used.of("generator"))/(peerJobs/1000)
		return err
	})
}

func (got sample) batches(ctx context.Context, sys system) error {
	items := strings.Repeat(","+string(peerJob), batchSize)[1:]
	to := target{url: sys.url + "/batch", key: sys.key, body: []byte(`{"jobs":[` + items + `]}`)}
	sent, err := closed{clients: batchProducers, jobs: peerJobs / batchSize}.submit(ctx, to)
	got[batchFigure] = sent.rate() * batchSize
	return err
}

// peerJob is a job of no duration with the peers' payload of 150 bytes.
var peerJob = []byte(`{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL","params":{"text":"` + strings.Repeat("x", 150) + `"}}`)

func submitPeerJobs(ctx context.Context, to target) (perSecond float64, err error) {
	to.body = peerJob
	sent, err := closed{clients: peerProducers, jobs: peerJobs}.submit(ctx, to)
	return sent.rate(), err
}
