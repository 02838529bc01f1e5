package experiments

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/bench/yardstick"
)

// Targets against other systems.
const (
	peerInsertTarget    = 4.0 // times River
	peerBatchTarget     = 1.5
	peerDrainTarget     = 1.0
	peerSustainedTarget = 3.0
	asynqTarget         = 1.0 // times asynq alone
	asynqCPUTarget      = 1.4
)

// peerRound is what one system did in one round.
type peerRound struct {
	insert, batch, drain, sustained yardstick.Measured
}

func (p peerRound) String() string {
	sustained := fmt.Sprintf("sustained %.0f/s with %.3f s of CPU per 1,000 jobs", p.sustained.Rate(), p.sustained.CPUPerThousand())
	if p.insert.Jobs == 0 {
		return sustained
	}
	return fmt.Sprintf("inserted %.0f/s, in batches %.0f/s, drained %.0f/s, %s", p.insert.Rate(), p.batch.Rate(), p.drain.Rate(), sustained)
}

// Peers compares the service with River and with asynq alone.
func Peers(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	program, err := yardstick.BuildPeers(ctx, l)
	if err != nil {
		return nil, err
	}
	names := []string{"forgerun", "river", "asynq"}
	sides := []func() (peerRound, error){
		func() (peerRound, error) { return servicePeer(ctx, l) },
		func() (peerRound, error) { return riverPeer(ctx, l, program) },
		func() (r peerRound, err error) {
			m, err := yardstick.Peer(ctx, l, program, "asynq", "sustained")
			if err == nil {
				r.sustained = m[0]
			}
			return r, err
		},
	}
	rounds := make([][]peerRound, len(sides))
	err = lab.InTurns(l.Options.Rounds, len(sides), func(round, side int) error {
		r, err := sides[side]()
		if err != nil {
			return fmt.Errorf("%s: %w", names[side], err)
		}
		l.Printf("round %d of %d, %s: %v", round+1, l.Options.Rounds, names[side], r)
		rounds[side] = append(rounds[side], r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if l.Options.Picture != "" {
		err = os.WriteFile(l.Options.Picture, []byte(peerPicture(rounds)), 0o644)
	}
	return peerFigures(rounds[0], rounds[1], rounds[2]), err
}

// peerPicture draws the medians of the service, of River and of asynq.
func peerPicture(rounds [][]peerRound) string {
	names := []string{"ForgeRun", "River", "asynq"}
	part := func(title, format string, value func(peerRound) float64) figures.Bars {
		p := figures.Bars{Title: title, Format: format}
		for i, name := range names {
			p.Values = append(p.Values, figures.Bar{System: name, Value: figures.Median(figures.Column(rounds[i], value))})
		}
		return p
	}
	rate := func(of func(peerRound) yardstick.Measured) func(peerRound) float64 {
		return func(r peerRound) float64 {
			if of(r).Jobs == 0 {
				return 0
			}
			return of(r).Rate()
		}
	}
	return figures.Picture([]figures.Bars{
		part("Submitted and finished at the same time, jobs/s", "%.0f", rate(func(r peerRound) yardstick.Measured { return r.sustained })),
		part("CPU of that, seconds for 1,000 jobs (less is better)", "%.2f s", func(r peerRound) float64 { return r.sustained.CPUPerThousand() }),
		part("Accepted one by one, jobs/s", "%.0f", rate(func(r peerRound) yardstick.Measured { return r.insert })),
		part("Accepted in batches of 1,000, jobs/s", "%.0f", rate(func(r peerRound) yardstick.Measured { return r.batch })),
		part("Finished of a backlog, jobs/s", "%.0f", rate(func(r peerRound) yardstick.Measured { return r.drain })),
	})
}

func peerFigures(service, river, asynq []peerRound) []figures.Figure {
	rate := func(of func(peerRound) yardstick.Measured) func(peerRound) float64 {
		return func(r peerRound) float64 { return of(r).Rate() }
	}
	figure := func(name string, target float64, unit string, against []peerRound, of func(peerRound) yardstick.Measured) figures.Figure {
		ratio, note := figures.Compare(service, against, rate(of), "%.0f/s")
		return figures.AtLeast(name, target, ratio, unit, note)
	}
	sustained := func(r peerRound) yardstick.Measured { return r.sustained }
	cpu, cpuNote := figures.Compare(service, asynq, func(r peerRound) float64 { return r.sustained.CPUPerThousand() }, "%.3f s")
	return []figures.Figure{
		figure("sustained/s against asynq alone", asynqTarget, "x asynq", asynq, sustained),
		figure("sustained/s against River", peerSustainedTarget, "x River", river, sustained),
		figure("accepted/s, single POSTs, against River's insert", peerInsertTarget, "x River", river,
			func(r peerRound) yardstick.Measured { return r.insert }),
		figure("accepted/s in batches of 1,000 against River's InsertMany", peerBatchTarget, "x River", river,
			func(r peerRound) yardstick.Measured { return r.batch }),
		figure("drain/s against River", peerDrainTarget, "x River", river, func(r peerRound) yardstick.Measured { return r.drain }),
		figures.AtMost("CPU per 1,000 jobs, sustained, against asynq alone", asynqCPUTarget, cpu, "x asynq",
			cpuNote+", the load generator included"),
	}
}

func riverPeer(ctx context.Context, l *lab.Lab, program string) (r peerRound, err error) {
	for _, phases := range [][]string{{"insert", "drain"}, {"batch"}, {"sustained"}} {
		measured, err := yardstick.Peer(ctx, l, program, "river", phases...)
		if err != nil {
			return r, err
		}
		for _, m := range measured {
			switch m.Phase {
			case "insert":
				r.insert = m
			case "drain":
				r.drain = m
			case "batch":
				r.batch = m
			case "sustained":
				r.sustained = m
			}
		}
	}
	return r, nil
}

// servicePeer takes the service through the same phases, each on fresh stores but the drain.
func servicePeer(ctx context.Context, l *lab.Lab) (r peerRound, err error) {
	o := l.Options
	o.Slots = yardstick.PeerWorkers
	jobs := o.Jobs(yardstick.PeerJobs)
	err = l.Phase(ctx, o, l.StartService, func(d *lab.Database, sys lab.System) error {
		if r.insert, err = submitPeerJobs(ctx, sys, jobs); err != nil {
			return err
		}
		return lab.WithWorker(sys, func(*lab.Program) error {
			r.drain, err = drained(ctx, d, jobs)
			return err
		})
	})
	if err != nil {
		return r, err
	}
	err = l.Phase(ctx, o, l.StartService, func(_ *lab.Database, sys lab.System) error {
		r.batch, err = submitBatches(ctx, sys, jobs)
		return err
	})
	if err != nil {
		return r, err
	}
	err = l.Phase(ctx, o, l.StartService, func(d *lab.Database, sys lab.System) error {
		return lab.WithWorker(sys, func(worker *lab.Program) error {
			before := l.Usage(sys, worker)
			if _, err := submitPeerJobs(ctx, sys, jobs); err != nil {
				return err
			}
			if err := d.AllFinished(ctx, before.At, jobs, time.Minute); err != nil {
				return err
			}
			used := l.Usage(sys, worker).Since(before)
			ended, err := d.Number(ctx, `SELECT extract(epoch FROM max(finished_at) - $1::timestamptz)::float8 FROM jobs`, before.At)
			r.sustained = yardstick.Measured{Phase: "sustained", Jobs: jobs, Took: ended, CPU: used.Service() + used.Generator}
			return err
		})
	})
	return r, err
}

// peerJob is a job of no duration with the peers' payload.
func peerJob(item string) []byte {
	fields := map[string]any{"type": "EXECUTE", "work_kind": "PAYLOAD_SMALL", "params": map[string]string{"text": yardstick.PeerPayload}}
	if item != "" {
		fields["item_id"] = item
	}
	text, _ := json.Marshal(fields) // cannot fail
	return text
}

func submitPeerJobs(ctx context.Context, sys lab.System, jobs int) (yardstick.Measured, error) {
	to := sys.Target
	to.Body = peerJob("")
	load, err := loadgen.Closed{Clients: yardstick.PeerProducers, Jobs: jobs}.Submit(ctx, to)
	return yardstick.Measured{Phase: "insert", Jobs: load.Accepted, Took: load.Took.Seconds()}, err
}

func submitBatches(ctx context.Context, sys lab.System, jobs int) (yardstick.Measured, error) {
	items := make([]string, yardstick.BatchSize)
	for i := range items {
		items[i] = string(peerJob(fmt.Sprint(i)))
	}
	to := sys.Target
	to.URL += "/batch"
	to.Body = []byte(`{"jobs":[` + strings.Join(items, ",") + `]}`)
	load, err := loadgen.Closed{Clients: yardstick.BatchProducers, Jobs: jobs / yardstick.BatchSize}.Submit(ctx, to)
	return yardstick.Measured{Phase: "batch", Jobs: load.Accepted * yardstick.BatchSize, Took: load.Took.Seconds()}, err
}

// drained waits until all jobs have ended, and measures from when the first one was assigned.
func drained(ctx context.Context, d *lab.Database, jobs int) (m yardstick.Measured, err error) {
	if err := d.AllFinished(ctx, time.Time{}, jobs, time.Minute); err != nil {
		return m, err
	}
	took, err := d.Number(ctx, `SELECT extract(epoch FROM max(finished_at) - min(assigned_at))::float8 FROM jobs`)
	return yardstick.Measured{Phase: "drain", Jobs: jobs, Took: took}, err
}
