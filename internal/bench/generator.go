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
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/internal/simulator/history"
	simload "github.com/forgerun/forgerun/internal/simulator/load"
	simreport "github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
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
	Bare     float64 // requests/s of fasthttp alone, just before
	Took     time.Duration
	CPU      time.Duration
	Memory   []int64 // resident bytes after each tenth of the jobs
}

// generatedJobs is how many submissions are sent.
const generatedJobs = 1_000_000

// generator sends from a process with one core to another one that does nothing.
func generator(ctx context.Context, l *lab) ([]figure, error) {
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
	l.say("sending %d submissions from one core (GOMAXPROCS=1) to a handler that does nothing", generatedJobs)
	engine := exec.CommandContext(ctx, self, "engine", "-jobs", strconv.Itoa(generatedJobs),
		"-watched="+strconv.FormatBool(l.o.watched), "-address", strings.TrimSpace(listening))
	engine.Env, engine.Stderr = append(os.Environ(), "GOMAXPROCS=1"), os.Stderr
	told, err := engine.Output()
	if err != nil {
		return nil, err
	}
	var g generated
	if err := json.Unmarshal(told, &g); err != nil {
		return nil, err
	}
	return g.figures(l, l.o.watched), nil
}

func (g generated) figures(l *lab, watched bool) (figures []figure) {
	rate := float64(g.Requests) / g.Took.Seconds()
	growth := float64(g.Memory[len(g.Memory)-1]) / float64(g.Memory[0])
	l.say("%d requests in %s: %.0f/s, %.0f for each second of its CPU", g.Requests, g.Took.Round(time.Millisecond), rate, float64(g.Requests)/g.CPU.Seconds())
	l.say("fasthttp alone, with one request and no JSON: %.0f/s, so that the machine is known", g.Bare)
	memory := make([]string, len(g.Memory))
	for i, m := range g.Memory {
		memory[i] = strconv.FormatInt(m>>20, 10)
	}
	l.say("resident memory after each tenth, MB: %s", strings.Join(memory, " "))
	if !watched { // the target is about sending
		figures = append(figures, atLeast("the simulator's requests/s on one core", generatorTarget, rate, "/s", fmt.Sprintf("fasthttp alone: %.0f/s", g.Bare)))
	}
	return append(figures, atMost("the simulator's memory, all jobs to a tenth", growthTarget, growth, "x a tenth", ""))
}

// serveNothing answers as a service would that accepts every job, and ends it at
// once for whoever reads its event stream.
func serveNothing() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	var number atomic.Int64
	var streamed atomic.Bool
	ended := make(chan string, 1000)
	server := &fasthttp.Server{NoDefaultDate: true, Handler: func(r *fasthttp.RequestCtx) {
		r.SetContentType("application/json")
		r.SetStatusCode(fasthttp.StatusCreated)
		switch path := string(r.Path()); {
		case path == "/v1/clients":
			r.SetBodyString(`{"client_id":"3b241101-e2bb-4255-8caf-4136c566a962"}`)
		case strings.HasSuffix(path, "/keys"):
			r.SetBodyString(`{"api_key":"frk_key_secret","key_id":"key","created_at":"2030-01-01T00:00:00.000000Z","expires_at":"2031-01-01T00:00:00.000000Z"}`)
		case path == "/bare":
			r.SetStatusCode(fasthttp.StatusAccepted)
		case path == "/v1/events":
			streamed.Store(true)
			r.SetStatusCode(fasthttp.StatusOK)
			r.SetContentType("text/event-stream")
			r.SetBodyStreamWriter(func(w *bufio.Writer) { streamEnds(w, ended) })
		default:
			id := fmt.Sprintf("0190a1b2-c3d4-7000-8000-%012x", number.Add(1))
			r.SetStatusCode(fasthttp.StatusAccepted)
			r.Response.Header.Set("X-Request-Id", "0190a1b2-c3d4-7000-8000-0000000000e5")
			r.SetBodyString(`{"job_id":"` + id + `","state":"QUEUED","created_at":"2030-01-01T00:00:00.000000Z"}`)
			if streamed.Load() {
				ended <- id
			}
		}
	}}
	return server.Serve(listener)
}

// streamEnds writes the five events of each job.
func streamEnds(w *bufio.Writer, ended <-chan string) {
	_, _ = w.WriteString("id: 0\ndata:\n\n")
	_ = w.Flush() // who is gone is seen below
	event := 0
	write := func(name, data string) {
		event++
		_, _ = fmt.Fprintf(w, "id: %d\nevent: job-%s\ndata: %s\n\n", event, name, data)
	}
	for id := range ended {
		prev := "null"
		for seq, state := range []string{"CREATED", "QUEUED", "ASSIGNED", "RUNNING"} {
			name := strings.ToLower(state)
			write(name, fmt.Sprintf(`{"event_id":"0190a1b2-c3d4-7000-8000-0000000000e5","seq":%d,"job_id":%q,"event_name":"job.%s","prev_state":%s,"next_state":%q,"attempt":1,"timestamp":"2030-01-01T00:00:00.000000Z","data":{}}`,
				seq+1, id, name, prev, state))
			prev = strconv.Quote(state)
		}
		write("succeeded", fmt.Sprintf(`{"jobId":%q,"jobStatus":"COMPLETED","attempt":1,"completedAt":"2030-01-01T00:00:00.000000Z"}`, id))
		if len(ended) == 0 && w.Flush() != nil {
			return
		}
	}
}

// gcPercent is that of cmd/simulator.
const gcPercent = 400

// runEngine runs the simulator's engine, with its history. Where the jobs are not
// watched, nobody looks what becomes of them.
func runEngine(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("engine", flag.ExitOnError)
	jobs := flags.Int64("jobs", 0, "")
	watched := flags.Bool("watched", false, "")
	address := flags.String("address", "", "")
	_ = flags.Parse(args) // it exits
	debug.SetGCPercent(gcPercent)
	streams := map[bool]int{true: 1}[*watched]
	s, err := scenario.Parse("generator.yaml", fmt.Appendf(nil,
		"jobs: %d\narrival: {open: [{rate: 1000000/s, for: 1h}]}\nmix: [{kind: SUCCESS_FAST}]\nreaders: {streams: %d}\n", *jobs, streams))
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
		URL: "http://" + *address, Run: "bench", Unwatched: !*watched, Connections: 64, Scenario: s, History: facts, Recorder: simreport.NewRecorder(time.Now()),
	})
	if err != nil {
		return err
	}
	if err := engine.Prepare(ctx); err != nil {
		return err
	}
	g := generated{Requests: *jobs, Bare: bareRate(*address)}
	done := make(chan struct{})
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		for tenth := int64(1); tenth <= 10; {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if engine.Tickets() >= tenth*(*jobs)/10-1 {
				g.Memory = append(g.Memory, resident())
				tenth++
			}
		}
	}()
	began, spent := time.Now(), ownCPU()
	if err := engine.Run(ctx); err != nil {
		return err
	}
	g.Took, g.CPU = time.Since(began), time.Duration((ownCPU()-spent)*float64(time.Second))
	close(done)
	<-measured
	engine.Drain(ctx)
	engine.Close()
	g.Memory = append(g.Memory, resident())
	if err := facts.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(g)
}

// bareRate sends the same request again and again over fasthttp, for two seconds.
func bareRate(address string) float64 {
	host := &fasthttp.HostClient{Addr: address, MaxConns: 64}
	var sent atomic.Int64
	var clients sync.WaitGroup
	began := time.Now()
	for range 64 {
		clients.Go(func() {
			request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			request.SetRequestURI("http://" + address + "/bare")
			request.Header.SetMethod(fasthttp.MethodPost)
			request.SetBodyString(`{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`)
			for time.Since(began) < 2*time.Second {
				if host.Do(request, response) == nil {
					sent.Add(1)
				}
			}
		})
	}
	clients.Wait()
	return float64(sent.Load()) / time.Since(began).Seconds()
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
