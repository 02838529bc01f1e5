package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/simulator/history"
	simload "github.com/forgerun/forgerun/simulator/load"
	simreport "github.com/forgerun/forgerun/simulator/report"
	"github.com/forgerun/forgerun/simulator/scenario"
)

// The simulator's generator, on one core, against a handler that does nothing: it
// must not be what limits a run, and a long run must not need more memory than a
// short one.
const (
	generatorTarget = 20_000 // requests/s
	// growthTarget bounds the memory after all jobs, in terms of that after a tenth.
	growthTarget = 1.25
)

// generated is what a generator process tells of itself.
type generated struct {
	Requests int64
	Took     time.Duration
	CPU      time.Duration
	Memory   []int64 // resident bytes after each tenth of the jobs
}

func runGenerator(ctx context.Context, args []string) (bool, error) {
	fs := flag.NewFlagSet("generator", flag.ExitOnError)
	jobs := fs.Int64("jobs", 1_000_000, "how many submissions")
	role := fs.String("role", "", "for the program's own use")
	address := fs.String("address", "", "for the program's own use")
	_ = fs.Parse(args) // it exits
	switch *role {
	case "handler":
		return true, serveNothing()
	case "generator":
		return true, runEngine(ctx, *address, *jobs)
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	handler := exec.CommandContext(ctx, self, "generator", "-role", "handler")
	out, err := handler.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := handler.Start(); err != nil {
		return false, err
	}
	defer func() { _ = handler.Process.Kill(); _ = handler.Wait() }()
	listening, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return false, fmt.Errorf("the handler did not start: %w", err)
	}
	fmt.Printf("sending %d submissions from one core (GOMAXPROCS=1) to a handler that does nothing\n", *jobs)
	generator := exec.CommandContext(ctx, self, "generator", "-role", "generator", "-jobs", strconv.FormatInt(*jobs, 10), "-address", strings.TrimSpace(listening))
	generator.Env, generator.Stderr = append(os.Environ(), "GOMAXPROCS=1"), os.Stderr
	told, err := generator.Output()
	if err != nil {
		return false, err
	}
	var g generated
	if err := json.Unmarshal(told, &g); err != nil {
		return false, err
	}
	return g.print(), nil
}

func (g generated) print() bool {
	rate := float64(g.Requests) / g.Took.Seconds()
	perCPU := float64(g.Requests) / g.CPU.Seconds()
	first, last := g.Memory[0], g.Memory[len(g.Memory)-1]
	growth := float64(last) / float64(first)
	fmt.Printf("  %d requests in %s: %.0f/s, %.0f for each second of its CPU\n", g.Requests, g.Took.Round(time.Millisecond), rate, perCPU)
	fmt.Printf("  resident memory after each tenth, MB:")
	for _, m := range g.Memory {
		fmt.Printf(" %d", m>>20)
	}
	fmt.Println()
	quick, flat := rate >= generatorTarget, growth <= growthTarget
	fmt.Printf("%-28s target >= %d/s, measured %.0f/s: %s\n", "requests/s on one core", generatorTarget, rate, verdict(quick))
	fmt.Printf("%-28s target <= %.2fx, measured %.2fx: %s\n", "memory, all jobs to a tenth", growthTarget, growth, verdict(flat))
	return quick && flat
}

// serveNothing answers as a service would that accepts every job.
func serveNothing() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	number := 0
	return fasthttp.Serve(listener, func(r *fasthttp.RequestCtx) {
		r.SetContentType("application/json")
		r.SetStatusCode(fasthttp.StatusCreated)
		switch path := string(r.Path()); {
		case path == "/v1/clients":
			r.SetBodyString(`{"client_id":"3b241101-e2bb-4255-8caf-4136c566a962"}`)
		case strings.HasSuffix(path, "/keys"):
			r.SetBodyString(`{"api_key":"frk_key_secret","key_id":"key","created_at":"2030-01-01T00:00:00.000000Z","expires_at":"2031-01-01T00:00:00.000000Z"}`)
		default:
			number++ // ids need not be unique when two cores race for one
			r.SetStatusCode(fasthttp.StatusAccepted)
			r.Response.Header.Set("X-Request-Id", "0190a1b2-c3d4-7000-8000-0000000000e5")
			r.SetBodyString(fmt.Sprintf(`{"job_id":"0190a1b2-c3d4-7000-8000-%012x","state":"QUEUED","created_at":"2030-01-01T00:00:00.000000Z"}`, number))
		}
	})
}

// runEngine runs the simulator's engine, with its history, and nobody who watches
// the jobs, since there are none.
func runEngine(ctx context.Context, address string, jobs int64) error {
	s, err := scenario.Parse("generator.yaml", fmt.Appendf(nil,
		"jobs: %d\narrival: {open: [{rate: 1000000/s, for: 1h}]}\nmix: [{kind: SUCCESS_FAST}]\nreaders: {streams: 0}\n", jobs))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "forgerun-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	facts, err := history.Create(filepath.Join(dir, "history"))
	if err != nil {
		return err
	}
	engine, err := simload.New(simload.Options{
		URL: "http://" + address, Run: "bench", Unwatched: true, Scenario: s, History: facts, Recorder: simreport.NewRecorder(time.Now()),
	})
	if err != nil {
		return err
	}
	if err := engine.Prepare(ctx); err != nil {
		return err
	}
	g := generated{Requests: jobs}
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for tenth := int64(1); tenth <= 10; {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if engine.Tickets() >= tenth*jobs/10-1 {
				g.Memory = append(g.Memory, resident())
				tenth++
			}
		}
	}()
	began := time.Now()
	if err := engine.Run(ctx); err != nil {
		return err
	}
	g.Took, g.CPU = time.Since(began), time.Duration(ownCPU()*float64(time.Second))
	close(done)
	<-watched
	engine.Close()
	g.Memory = append(g.Memory, resident())
	if err := facts.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(g)
}

// resident is how much memory the process has now; where /proc does not tell,
// what Go took from the system.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
		if pages, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			return pages * int64(os.Getpagesize())
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}
