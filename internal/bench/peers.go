package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/stack"
)

// The task of every compared system.
const (
	peerJobs       = 20_000 // in each phase
	peerProducers  = 32
	peerWorkers    = 100
	batchSize      = 1000
	batchProducers = 4

	batchFigure = "Accepted in batches of 1,000, jobs/s"
	drainFigure = "Finished of a backlog, jobs/s"
)

// peersExperiment takes the same jobs through the service, River and asynq alone.
func peersExperiment(ctx context.Context, l *lab) ([]figure, error) {
	peers, err := l.peers(ctx, "insert drain", "batch", "sustained")
	if err != nil {
		return nil, err
	}
	ours := l.programs(ctx, func(ctx context.Context, l *lab, s service) (sample, error) {
		got, err := measurePeerJobs(ctx, l, s, true)
		if err != nil {
			return got, err
		}
		got[batchFigure], err = measureBatches(ctx, l, s)
		return got, err
	})
	return inTurns(l.rounds, append(ours, peers...), sustainedFigure, cpuFigure, acceptedFigure, batchFigure,
		drainFigure)
}

// peers builds the program of the module in internal/bench/peers. It returns River, which takes these phases, and asynq.
func (l *lab) peers(ctx context.Context, river ...string) ([]side, error) {
	program := filepath.Join(l.dir, "peers")
	if err := build(ctx, "internal/bench/peers", program, "."); err != nil {
		return nil, err
	}
	return []side{
		{name: "River", measure: func() (sample, error) { return l.runPeer(ctx, program, "river", river...) }},
		{name: "asynq", measure: func() (sample, error) { return l.runPeer(ctx, program, "asynq", "insert", "sustained") }},
	}, nil
}

// runPeer takes a peer through phases. Those in one string follow each other on the same stores.
func (l *lab) runPeer(ctx context.Context, program, name string, runs ...string) (sample, error) {
	got := sample{}
	for _, phases := range runs {
		err := l.withDatabase(ctx, func(d *database) error {
			address := d.url
			if name == "asynq" {
				address = l.servers.Redis.URL()
			}
			before := l.serversCPU()
			c := exec.CommandContext(ctx, program, append([]string{ //nolint:gosec // this process has built it
				name, address, strconv.Itoa(peerJobs), strconv.Itoa(peerProducers), strconv.Itoa(peerWorkers),
			}, strings.Fields(phases)...)...)
			var stderr bytes.Buffer
			c.Stderr = &stderr
			out, err := c.Output()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", phases, err, stderr.Bytes())
			}
			return got.readPeer(out, l.serversCPU()-before)
		})
		if err != nil {
			return got, err
		}
	}
	return got, nil
}

// readPeer reads the program's output, one line per phase. CPU is measured in the phase "sustained", servers included.
func (s sample) readPeer(out []byte, servers float64) error {
	names := map[string]string{"insert": acceptedFigure, "batch": batchFigure, "drain": drainFigure, "sustained": sustainedFigure}
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var m struct {
			Phase           string
			Jobs, Took, CPU float64
		}
		if err := lines.Decode(&m); err != nil {
			return err
		}
		if s[names[m.Phase]] = m.Jobs / m.Took; m.Phase == "sustained" {
			s[cpuFigure] = (m.CPU + servers) / (m.Jobs / 1000)
		}
	}
	return nil
}

// measurePeerJobs takes the service through the phases insert and sustained, and on request drain. CPU includes the load generator, as
// that of the peers does.
func measurePeerJobs(ctx context.Context, l *lab, s service, drain bool) (sample, error) {
	got := sample{}
	s.slots = peerWorkers
	err := l.phase(ctx, s, func(sys system) (err error) {
		if got[acceptedFigure], err = submitOneByOne(ctx, sys); err != nil || !drain {
			return err
		}
		return sys.withWorker(ctx, func(*stack.Process) error {
			if err := sys.db.allFinished(ctx, time.Time{}, peerJobs); err != nil {
				return err
			}
			took, err := sys.db.number(ctx, `SELECT extract(epoch FROM max(finished_at) - min(assigned_at)) FROM jobs`)
			got[drainFigure] = peerJobs / took
			return err
		})
	})
	if err != nil {
		return got, err
	}
	return got, l.phase(ctx, s, func(sys system) error {
		return sys.withWorker(ctx, func(worker *stack.Process) error {
			before := l.use(sys, worker)
			if _, err := submitOneByOne(ctx, sys); err != nil {
				return err
			}
			if err := sys.db.allFinished(ctx, before.at, peerJobs); err != nil {
				return err
			}
			used := l.use(sys, worker).since(before)
			took, err := sys.db.number(ctx, `SELECT extract(epoch FROM max(finished_at) - $1::timestamptz) FROM jobs`, before.at)
			got[sustainedFigure], got[cpuFigure] = peerJobs/took, (used.service()+used.generator)/(peerJobs/1000)
			return err
		})
	})
}

// measureBatches submits batches of jobs to the service.
func measureBatches(ctx context.Context, l *lab, s service) (perSecond float64, err error) {
	err = l.phase(ctx, s, func(sys system) error {
		items := make([]string, batchSize)
		for i := range items {
			items[i] = string(peerJob(fmt.Sprint(i)))
		}
		sys.url += "/batch"
		sys.body = []byte(`{"jobs":[` + strings.Join(items, ",") + `]}`)
		sent, err := closed{clients: batchProducers, jobs: peerJobs / batchSize}.submit(ctx, sys.target)
		perSecond = sent.rate() * batchSize
		return err
	})
	return perSecond, err
}

// peerJob is a job of no duration with the peers' payload of 150 bytes.
func peerJob(item string) []byte {
	fields := map[string]any{"type": "EXECUTE", "work_kind": "PAYLOAD_SMALL", "params": map[string]string{"text": strings.Repeat("x", 150)}}
	if item != "" {
		fields["item_id"] = item
	}
	text, _ := json.Marshal(fields) // cannot fail
	return text
}

func submitOneByOne(ctx context.Context, sys system) (perSecond float64, err error) {
	sys.body = peerJob("")
	sent, err := closed{clients: peerProducers, jobs: peerJobs}.submit(ctx, sys.target)
	return sent.rate(), err
}
