package experiments

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/load"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// gcPercent is that of cmd/simulator.
const gcPercent = 400

// RunEngine is the process of the simulator's engine, with its history. Where the
// jobs are not watched, their states are not read.
func RunEngine(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("engine", flag.ExitOnError)
	jobs := flags.Int64("jobs", 0, "")
	watched := flags.Bool("watched", false, "")
	address := flags.String("address", "", "")
	_ = flags.Parse(args) // it exits
	debug.SetGCPercent(gcPercent)
	dir, err := os.MkdirTemp("", "forgerun-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	facts, err := history.Create(filepath.Join(dir, "history"))
	if err != nil {
		return err
	}
	engine, err := newEngine(*jobs, *watched, *address, facts)
	if err != nil {
		return err
	}
	if err := engine.Prepare(ctx); err != nil {
		return err
	}
	// An error would be a request that was not accepted: the rate just is lower then.
	bare, _ := loadgen.Closed{Clients: 64, During: 2 * time.Second}.Submit(ctx, loadgen.Target{URL: "http://" + *address + "/bare"})
	g := generated{Requests: *jobs, Bare: bare.Rate()}
	ended, watching := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		g.watchMemory(engine, ended)
	}()
	began, before := time.Now(), lab.OwnCPU()
	if err := engine.Run(ctx); err != nil {
		return err
	}
	g.Took, g.CPU = time.Since(began), time.Duration((lab.OwnCPU()-before)*float64(time.Second))
	close(ended)
	<-watching
	engine.Drain(ctx)
	engine.Close()
	g.Memory = append(g.Memory, resident())
	if err := facts.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(g)
}

func newEngine(jobs int64, watched bool, address string, facts *history.Writer) (*load.Engine, error) {
	streams := map[bool]int{true: 1}[watched]
	s, err := scenario.Parse("generator.yaml", fmt.Appendf(nil,
		"jobs: %d\narrival: {open: [{rate: 1000000/s, for: 1h}]}\nmix: [{kind: SUCCESS_FAST}]\nreaders: {streams: %d}\n", jobs, streams))
	if err != nil {
		return nil, err
	}
	return load.New(load.Options{
		URL: "http://" + address, Run: "bench", Unwatched: !watched, Connections: 64, Scenario: s,
		History: facts, Recorder: report.NewRecorder(time.Now()),
	})
}

// watchMemory reads the memory after each tenth of the jobs, until the end.
func (g *generated) watchMemory(engine *load.Engine, ended <-chan struct{}) {
	for tenth := int64(1); tenth <= 10; {
		select {
		case <-ended:
			return
		case <-time.After(lab.PollInterval):
		}
		if engine.Tickets() >= tenth*g.Requests/10-1 {
			g.Memory = append(g.Memory, resident())
			tenth++
		}
	}
}

// resident is the memory of this process in MB; where there is no /proc, what Go
// took from the system.
func resident() float64 {
	if now, _, err := lab.ProcessMemory(os.Getpid()); err == nil {
		return now
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys-m.HeapReleased) / 1e6
}
