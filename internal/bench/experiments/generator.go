package experiments

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
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/load"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// The simulator's generator must not limit a run, and a long run must not need more
// memory than a short one.
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
	handler, err := lab.Launch(self, nil, "nothing")
	if err != nil {
		return nil, err
	}
	defer handler.Kill()
	address, err := handler.Logged(ctx, `listening on (\S+)\n`)
	if err != nil {
		return nil, err
	}
	l.Printf("sending %d submissions from one core (GOMAXPROCS=1) to a handler that does nothing", generatorJobs)
	engine := exec.CommandContext(ctx, self, "engine", "-jobs", strconv.Itoa(generatorJobs),
		"-watched="+strconv.FormatBool(l.Options.Watched), "-address", address)
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

// ServeNothing is the process that answers as a service would that accepts every
// job, and ends it at once for the reader of its event stream.
func ServeNothing(context.Context, []string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	n := nothing{ended: make(chan string, 1000)}
	return (&fasthttp.Server{NoDefaultDate: true, Handler: n.handle}).Serve(listener)
}

type nothing struct {
	jobs     atomic.Int64
	streamed atomic.Bool
	ended    chan string
}

func (n *nothing) handle(r *fasthttp.RequestCtx) {
	r.SetContentType("application/json")
	r.SetStatusCode(fasthttp.StatusCreated)
	switch path := string(r.Path()); {
	case path == "/v1/clients":
		r.SetBodyString(`{"client_id":"3b241101-e2bb-4255-8caf-4136c566a962"}`)
	case strings.HasSuffix(path, "/keys"):
		r.SetBodyString(`{"api_key":"frk_key_secret","key_id":"key","created_at":"2030-01-01T00:00:00.000000Z",` +
			`"expires_at":"2031-01-01T00:00:00.000000Z"}`)
	case path == "/bare":
		r.SetStatusCode(fasthttp.StatusAccepted)
	case path == "/v1/events":
		n.streamed.Store(true)
		r.SetStatusCode(fasthttp.StatusOK)
		r.SetContentType("text/event-stream")
		r.SetBodyStreamWriter(func(w *bufio.Writer) { streamEnds(w, n.ended) })
	default:
		id := fmt.Sprintf("0190a1b2-c3d4-7000-8000-%012x", n.jobs.Add(1))
		r.SetStatusCode(fasthttp.StatusAccepted)
		r.Response.Header.Set("X-Request-Id", "0190a1b2-c3d4-7000-8000-0000000000e5")
		r.SetBodyString(`{"job_id":"` + id + `","state":"QUEUED","created_at":"2030-01-01T00:00:00.000000Z"}`)
		if n.streamed.Load() {
			n.ended <- id
		}
	}
}

// streamEnds writes the five events of each job.
func streamEnds(w *bufio.Writer, ended <-chan string) {
	_, _ = w.WriteString("id: 0\ndata:\n\n")
	_ = w.Flush() // a lost connection is seen below
	event := 0
	write := func(name, data string) {
		event++
		_, _ = fmt.Fprintf(w, "id: %d\nevent: job-%s\ndata: %s\n\n", event, name, data)
	}
	for id := range ended {
		prev := "null"
		for seq, state := range []string{"CREATED", "QUEUED", "ASSIGNED", "RUNNING"} {
			name := strings.ToLower(state)
			write(name, fmt.Sprintf(`{"event_id":"0190a1b2-c3d4-7000-8000-0000000000e5","seq":%d,"job_id":%q,"event_name":"job.%s",`+
				`"prev_state":%s,"next_state":%q,"attempt":1,"timestamp":"2030-01-01T00:00:00.000000Z","data":{}}`, seq+1, id, name, prev, state))
			prev = strconv.Quote(state)
		}
		write("succeeded", fmt.Sprintf(`{"jobId":%q,"jobStatus":"COMPLETED","attempt":1,"completedAt":"2030-01-01T00:00:00.000000Z"}`, id))
		if len(ended) == 0 && w.Flush() != nil {
			return
		}
	}
}
