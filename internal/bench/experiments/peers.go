package experiments

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/stack"
)

// What every system that is compared does.
const (
	peerJobs       = 20_000 // in each phase
	peerProducers  = 32
	peerWorkers    = 100
	batchSize      = 1000
	batchProducers = 4
)

// peer is what one system did in one round: jobs per second by phase, and as "cpu" the seconds for 1,000 jobs of phase
// "sustained", the load generator included. A phase that it does not have is 0.
type peer map[string]float64

func (p peer) String() string {
	return fmt.Sprintf("accepted %.0f/s, in batches %.0f/s, drained %.0f/s, sustained %.0f/s with %.3f s of CPU per 1,000 jobs",
		p["insert"], p["batch"], p["drain"], p["sustained"], p["cpu"])
}

// Peers takes the same jobs through the service, River and asynq alone.
func Peers(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	program, err := buildPeers(ctx, l)
	if err != nil {
		return nil, err
	}
	sides := append(programs(ctx, l, measureService),
		figures.Side[peer]{Name: "River", Measure: func() (peer, error) {
			return runPeer(ctx, l, program, "river", "insert drain", "batch", "sustained")
		}},
		figures.Side[peer]{Name: "asynq", Measure: func() (peer, error) { return runPeer(ctx, l, program, "asynq", "sustained") }})
	got, err := figures.InTurns(l.Rounds, sides...)
	if err != nil {
		return nil, err
	}
	var list []figures.Figure
	for _, f := range []struct{ value, name string }{
		{"sustained", "Submitted and finished at the same time, jobs/s"},
		{"cpu", "CPU of that, seconds for 1,000 jobs (less is better)"},
		{"insert", "Accepted one by one, jobs/s"},
		{"batch", "Accepted in batches of 1,000, jobs/s"},
		{"drain", "Finished of a backlog, jobs/s"},
	} {
		list = append(list, figures.New(f.name, got, func(p peer) float64 { return p[f.value] }))
	}
	return list, nil
}

// measureService takes the service through the same phases, each on fresh stores but the drain.
func measureService(ctx context.Context, l *lab.Lab, s lab.Service) (p peer, err error) {
	p, s.Slots = peer{}, peerWorkers
	err = l.Phase(ctx, s, func(sys lab.System) error {
		if p["insert"], err = submitOneByOne(ctx, sys); err != nil {
			return err
		}
		return sys.WithWorker(ctx, func(*stack.Process) error {
			if err := sys.DB.AllFinished(ctx, time.Time{}, peerJobs); err != nil {
				return err
			}
			took, err := sys.DB.Number(ctx, `SELECT extract(epoch FROM max(finished_at) - min(assigned_at)) FROM jobs`)
			p["drain"] = peerJobs / took
			return err
		})
	})
	if err != nil {
		return p, err
	}
	err = l.Phase(ctx, s, func(sys lab.System) error {
		p["batch"], err = submitBatches(ctx, sys)
		return err
	})
	if err != nil {
		return p, err
	}
	err = l.Phase(ctx, s, func(sys lab.System) error {
		return sys.WithWorker(ctx, func(worker *stack.Process) error {
			before := l.Usage(sys, worker)
			if _, err := submitOneByOne(ctx, sys); err != nil {
				return err
			}
			if err := sys.DB.AllFinished(ctx, before.At, peerJobs); err != nil {
				return err
			}
			used := l.Usage(sys, worker).Since(before)
			took, err := sys.DB.Number(ctx, `SELECT extract(epoch FROM max(finished_at) - $1::timestamptz) FROM jobs`, before.At)
			p["sustained"], p["cpu"] = peerJobs/took, (used.Service()+used.Generator)/(peerJobs/1000)
			return err
		})
	})
	return p, err
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

func submitOneByOne(ctx context.Context, sys lab.System) (perSecond float64, err error) {
	sys.Body = peerJob("")
	load, err := loadgen.Closed{Clients: peerProducers, Jobs: peerJobs}.Submit(ctx, sys.Target)
	return load.Rate(), err
}

func submitBatches(ctx context.Context, sys lab.System) (perSecond float64, err error) {
	items := make([]string, batchSize)
	for i := range items {
		items[i] = string(peerJob(fmt.Sprint(i)))
	}
	sys.URL += "/batch"
	sys.Body = []byte(`{"jobs":[` + strings.Join(items, ",") + `]}`)
	load, err := loadgen.Closed{Clients: batchProducers, Jobs: peerJobs / batchSize}.Submit(ctx, sys.Target)
	return load.Rate() * batchSize, err
}
