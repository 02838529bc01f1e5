// Package trial runs one scenario from beginning to end. It starts a service or uses a running one, sends the load, judges the run, and
// writes the report. The caller handles flags and exit codes.
package trial

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/judge/collect"
	"github.com/forgerun/forgerun/internal/simulator/load"
	webhooks "github.com/forgerun/forgerun/internal/simulator/receiver"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/stack"
)

// Options configure a Trial.
type Options struct {
	Scenario         *scenario.Scenario
	Command, Program string // for the report: the command line, and the program's name and version

	URL, Key              string        // address and API key of a running service; if URL is "", a service is started
	DatabaseURL, RedisURL string        // stores of the service at URL, for the judge
	AdminURLs             []string      // admin listeners of the service at URL; the judge compares their metrics with the database
	TimeScale             *float64      // FORGERUN_TIME_SCALE of the service at URL; nil: unknown
	StartWorkers          bool          // start workers for the service at URL
	Binary                string        // path of the program forgerun; "": this program
	Lease                 time.Duration // lease of the workers that the simulator starts

	ReceiverAddr, ReceiverURL string

	Sample         int // number of jobs of which the reports are read over HTTP
	Out            string
	Keep           bool // keep the history and the logs even without violations
	Stdout, Stderr io.Writer
}

// Trial is one run of a scenario. Call either Run, or each of Prepare, Drive, Judge, Summarize, Write and Close once, in this order.
type Trial struct {
	o Options

	id       string // id of the run; its jobs' correlation ids begin with it
	url      string
	began    time.Time
	stack    *stack.Stack // nil if nothing was started
	dir      string       // temporary folder of the started processes; "" if none was started
	receiver *webhooks.Receiver
	facts    *history.Store
	recorder *report.Recorder
	engine   *load.Engine
	chaos    stack.Chaos
	workers  stack.Schedule
	// disturbed is true if processes were stopped or faults injected. The counters in metrics are then incomplete, because a new process
	// counts from 0.
	disturbed atomic.Bool

	mu       sync.Mutex
	notes    []string
	outage   outage // times of the planned outage (service.down in the scenario)
	drained  bool   // all jobs had ended when the streams were closed
	unhealed error  // error if the service did not recover from the faults
}

// New makes a trial.
func New(o Options) *Trial {
	t := &Trial{o: o, id: "sim" + rand.Text()[:10], began: time.Now()}
	if t.o.Out == "" {
		t.o.Out = filepath.Join(".forgerun", "runs", o.Scenario.Name+"-"+t.began.UTC().Format("20060102-150405"))
	}
	return t
}

// Run runs the scenario, judges it, writes the report and stops what it started. After an error, it writes no report and keeps only the
// logs.
func (t *Trial) Run(ctx context.Context) (outcome report.Outcome, err error) {
	account, err := t.playAndJudge(ctx)
	t.cleanUp(ctx)
	if closing := t.Close(); closing != nil {
		account.Expectations = append(account.Expectations, report.Expectation{
			Name: "shutdown", Want: "every process ends cleanly", Got: closing.Error(),
		})
	}
	defer func() { _ = os.RemoveAll(t.dir) }()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if err == nil {
		err = t.Write(account)
	} else if t.dir != "" && t.keepLogs() == nil {
		fmt.Fprintf(t.o.Stderr, "The logs are in %s\n", filepath.Join(t.o.Out, "logs"))
	}
	if err != nil {
		if t.facts != nil { // Prepare created the folder in this run, so it may be deleted
			_ = os.RemoveAll(filepath.Join(t.o.Out, HistoryFolder))
		}
		_ = os.Remove(t.o.Out) // removes the folder only if it is empty
		return "", err
	}
	return account.Outcome(), nil
}

func (t *Trial) playAndJudge(ctx context.Context) (report.Run, error) {
	if err := t.Prepare(ctx); err != nil {
		return report.Run{}, err
	}
	defer report.Live(t.o.Stderr, t.recorder, nil)()
	if err := t.Drive(ctx); err != nil {
		return report.Run{}, err
	}
	numbers := t.recorder.Run() // called before Judge, so that the run's duration does not include the judging
	verdict, err := t.Judge(ctx)
	if err != nil {
		return report.Run{}, err
	}
	return t.Summarize(numbers, verdict), nil
}

// patience limits the time until the started processes are ready.
const patience = 90 * time.Second

// Prepare starts the service if needed, creates the report's folder, and registers the tenants.
func (t *Trial) Prepare(ctx context.Context) error {
	var err error
	if t.chaos, err = stack.ParseChaos(t.o.Scenario.Chaos); err != nil {
		return err
	}
	if t.workers, err = stack.ParseWorkers(t.o.Scenario.Service.Workers); err != nil {
		return err
	}
	if t.url, err = t.service(ctx); err != nil {
		return err
	}
	if err := collect.CheckStores(ctx, t.o.DatabaseURL, t.o.RedisURL); err != nil {
		return err
	}
	if err := os.MkdirAll(t.o.Out, 0o755); err != nil {
		return err
	}
	if t.facts, err = history.Create(filepath.Join(t.o.Out, HistoryFolder)); err != nil {
		return fmt.Errorf("%w (choose another --out)", err)
	}
	t.recorder = report.NewRecorder(time.Now())
	if t.o.URL != "" {
		t.note("the service was already running: the scenario's settings for the service apply only to workers that --workers starts")
	}
	if err := t.listen(); err != nil {
		return err
	}
	o := load.Options{
		URL: t.url, Key: t.o.Key, Run: t.id, Scenario: t.o.Scenario,
		History: t.facts, Recorder: t.recorder, Receiver: t.receiver, Pending: t.pending(),
	}
	if t.expectsKinds() {
		o.Recheck = time.Second
	}
	t.engine = load.New(o)
	return t.engine.Prepare(ctx)
}

func (t *Trial) pending() func(context.Context) (int64, error) {
	if t.o.DatabaseURL == "" {
		return nil
	}
	return func(ctx context.Context) (int64, error) {
		var clients []string
		for _, a := range t.engine.Accounts() {
			if a.ClientID != "" {
				clients = append(clients, a.ClientID)
			}
		}
		return collect.PendingDeliveries(ctx, t.o.DatabaseURL, clients, t.engine.ClockMoves().At(t.began))
	}
}

func (t *Trial) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := fmt.Sprintf(format, args...); len(t.notes) < 100 {
		t.notes = append(t.notes, text)
	}
}

const cleanUpLimit = 10 * time.Second

func (t *Trial) cleanUp(ctx context.Context) {
	if t.o.URL == "" || t.engine == nil {
		return
	}
	t.closeClients()
	if ctx.Err() != nil {
		_ = load.Sleep(context.WithoutCancel(ctx), time.Second) // the service may still create jobs for interrupted submissions
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	for _, a := range t.engine.Accounts() {
		for _, w := range a.Webhooks {
			_ = a.Client.DeleteWebhook(ctx, w.ID)
		}
		for _, state := range []string{client.Created, client.Queued, client.Assigned, client.Running} {
			for j, err := range a.Client.Jobs(ctx, client.JobFilter{State: state, CreatedAfter: t.began.Add(-time.Minute), PageSize: 100}) {
				if err != nil {
					break
				}
				if _, ours := judge.TicketOf(t.id, j.CorrelationID); ours {
					_, _ = a.Client.Cancel(ctx, j.JobID) // fails if the job has ended meanwhile
				}
			}
		}
	}
}

func (t *Trial) closeClients() {
	if t.engine != nil {
		t.engine.Close()
	}
	if t.receiver != nil {
		t.receiver.Close()
	}
}

// Close stops everything that the trial started. It may be called at any time, even after a failed Prepare.
func (t *Trial) Close() error {
	t.closeClients()
	var errs []error
	if t.facts != nil {
		errs = append(errs, t.facts.Close())
	}
	if t.stack != nil {
		errs = append(errs, t.stack.Close())
	}
	return errors.Join(errs...)
}
