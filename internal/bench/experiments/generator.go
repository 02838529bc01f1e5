package experiments

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
)

// The simulator's generator, on one core, against a handler that does nothing: it
// must not be what limits a run, and a long run must not need more memory than a
// short one.
const (
	generatorTarget = 20_000 // requests/s
	// growthTarget bounds the memory after all jobs, in terms of that after a tenth.
	growthTarget  = 1.25
	generatorJobs = 1_000_000
)

// generated is what the generator's process reports.
type generated struct {
	Requests int64
	Bare     float64 // requests/s of fasthttp alone, just before
	Took     time.Duration
	CPU      time.Duration
	Memory   []float64 // resident MB after each tenth of the jobs
}

// Generator sends from a process with one core to another one that does nothing.
func Generator(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	handler := exec.CommandContext(ctx, self, "nothing")
	out, err := handler.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := handler.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = handler.Process.Kill(); _ = handler.Wait() }()
	listening, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the handler did not start: %w", err)
	}
	l.Printf("sending %d submissions from one core (GOMAXPROCS=1) to a handler that does nothing", generatorJobs)
	engine := exec.CommandContext(ctx, self, "engine", "-jobs", strconv.Itoa(generatorJobs),
		"-watched="+strconv.FormatBool(l.Options.Watched), "-address", strings.TrimSpace(listening))
	engine.Env, engine.Stderr = append(os.Environ(), "GOMAXPROCS=1"), os.Stderr
	result, err := engine.Output()
	if err != nil {
		return nil, err
	}
	var g generated
	if err := json.Unmarshal(result, &g); err != nil {
		return nil, err
	}
	return g.figures(l), nil
}

func (g generated) figures(l *lab.Lab) (list []figures.Figure) {
	rate := float64(g.Requests) / g.Took.Seconds()
	l.Printf("%d requests in %s: %.0f/s, %.0f for each second of its CPU",
		g.Requests, g.Took.Round(time.Millisecond), rate, float64(g.Requests)/g.CPU.Seconds())
	l.Printf("fasthttp alone, with one request and no JSON: %.0f/s, so that the machine is known", g.Bare)
	l.Printf("resident memory after each tenth, MB: %.0f", g.Memory)
	if !l.Options.Watched { // the target is about sending
		list = append(list, figures.AtLeast("the simulator's requests/s on one core", generatorTarget, rate, "/s",
			fmt.Sprintf("fasthttp alone: %.0f/s", g.Bare)))
	}
	growth := g.Memory[len(g.Memory)-1] / g.Memory[0]
	return append(list, figures.AtMost("the simulator's memory, all jobs to a tenth", growthTarget, growth, "x a tenth", ""))
}
