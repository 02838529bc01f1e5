package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

const tourHelp = `Usage: simulator tour --url URL [flags]

Submits one job of each of the 31 work kinds to a running service, does the
client's part (cancels, retries, duplicates, schedules), waits for all of them,
and compares every job, report and event with the catalogue. Without --key it
registers a client of its own, which the service must allow.

At time scale 1 the longest kinds take two minutes; with few workers the tour
takes as long as all kinds together. The clocks of both machines should agree
to within a second. What the tour leaves unfinished it cancels.

For the WEBHOOK_ kinds the tour is a webhook receiver itself, which the service
must be able to call: on loopback that takes FORGERUN_WEBHOOK_ALLOW_PRIVATE at
the service, elsewhere --receiver-addr and --receiver-url. How long a service
goes on retrying is its own affair: with its defaults a quarter of an hour. The
tour waits --webhook-patience for the end of a delivery and then says how far it
came.

Examples:
  simulator tour --url http://127.0.0.1:8080
  simulator tour --url http://127.0.0.1:8080 --key frk_... --timeout 30m
  simulator tour --url http://127.0.0.1:8080 --time-scale-hint 0.02
  simulator tour --url https://forgerun.example.com --key frk_... \
    --receiver-addr :9000 --receiver-url http://192.0.2.7:9000
`

// errTimeUp ends the tour at its --timeout.
var errTimeUp = errors.New("the tour's time is up")

// outage takes the service down and brings it back when the given moment has
// passed.
type outage func(ctx context.Context, until time.Time) (outageTimes, error)

// outageTimes are the moments of an outage: fully stopped, about to be
// started, and ready again.
type outageTimes struct{ down, restarted, ready time.Time }

// tour plays kinds against one service.
type tour struct {
	client   *client
	receiver *receiver
	kinds    []kind
	pace     pace
	scale    *float64 // the service's time scale, nil when unknown
	outage   outage   // nil against a service that is not ours
	timeout  time.Duration
	stdout   io.Writer
	stderr   io.Writer
}

// result is what became of one kind.
type result struct {
	kind     kind
	got      string
	attempts int // 0: no job
	duration time.Duration
	findings []string
	cut      bool     // got is how far it came: the end was not waited for
	notes    []string // worth telling, and no difference
	err      error    // why the kind could not be judged to its end
}

func (r result) ok() bool     { return len(r.findings) == 0 && r.err == nil }
func (r result) judged() bool { return len(r.findings) > 0 || r.err == nil }

func runTour(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("tour", flag.ContinueOnError)
	address := fs.String("url", "", "base `URL` of the service (required)")
	key := fs.String("key", "", "API `key`; without one a client is registered")
	timeout := fs.Duration("timeout", 15*time.Minute, "give up after this `time`")
	receiverAddr := fs.String("receiver-addr", "127.0.0.1:0", "`address` on which to receive webhooks")
	receiverURL := fs.String("receiver-url", "", "base `URL` at which the service reaches that (default: the address itself)")
	patience := fs.Duration("webhook-patience", paceFor(nil).patience, "wait this `time` for the end of each delivery")
	var scale *float64
	fs.Func("time-scale-hint", "the service's FORGERUN_TIME_SCALE, a `number`, if known: the tour then\n"+
		"looks as often as needed and judges durations too", func(s string) error {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f <= 1000) {
			return errors.New("must be a number from 0 to 1000")
		}
		scale = &f
		return nil
	})
	if code, done := parse(fs, tourHelp, args, stdout, stderr); done {
		return code
	}
	if *timeout <= 0 || *patience <= 0 {
		return unusable(stderr, errors.New("--timeout and --webhook-patience must be above 0"))
	}
	c, err := newClient(*address, *key, newTransport())
	if err != nil {
		return unusable(stderr, err)
	}
	r, err := listenReceiver(*receiverAddr, *receiverURL)
	if err != nil {
		return unusable(stderr, err)
	}
	defer r.close()
	pace := paceFor(scale)
	pace.patience = *patience
	t := &tour{
		client: c, receiver: r, kinds: catalogue(), pace: pace, scale: scale,
		timeout: *timeout, stdout: stdout, stderr: stderr,
	}
	return t.run(ctx)
}

// run connects, plays all kinds, prints the table and gives the exit code.
func (t *tour) run(ctx context.Context) int {
	if err := t.client.connect(ctx); err != nil {
		if ctx.Err() != nil {
			return exitInterrupted
		}
		return unusable(t.stderr, err)
	}
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, t.timeout, errTimeUp)
	defer cancel()
	progress := startProgress(t.stderr, t.kinds)
	results := t.play(limited, progress)
	progress.stop()

	if ctx.Err() != nil {
		fmt.Fprintln(t.stderr, "simulator: interrupted")
		return exitInterrupted
	}
	printTable(t.stdout, results, time.Since(began))
	return t.exitCode(results)
}

// exitCode sums the results up.
func (t *tour) exitCode(results []result) int {
	code := exitOK
	for _, r := range results {
		if errors.Is(r.err, errAway) {
			return unusable(t.stderr, fmt.Errorf("the service at %s stopped answering during the tour: %w", t.client.base, r.err))
		}
		if !r.ok() {
			code = exitDifferent
		}
	}
	return code
}

// play runs all kinds at once, but those that take the service down after all
// others. A service that stays away ends the whole tour.
func (t *tour) play(ctx context.Context, progress *progress) []result {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	results := make([]result, len(t.kinds))
	for _, outageRound := range []bool{false, true} {
		var round sync.WaitGroup
		for i, k := range t.kinds {
			if (k.outage && t.outage != nil) != outageRound {
				continue
			}
			round.Go(func() {
				results[i] = t.visit(ctx, k, progress)
				progress.finish(k.name, results[i].ok())
				if errors.Is(results[i].err, errAway) {
					abort(results[i].err)
				}
			})
		}
		round.Wait()
	}
	return results
}

// visit plays one kind.
func (t *tour) visit(ctx context.Context, k kind, progress *progress) result {
	v := &visit{
		kind: k, client: t.client, receiver: t.receiver, pace: t.pace, scale: t.scale, outage: t.outage,
		open: map[string]bool{}, saw: func(state string) { progress.see(k.name, state) },
	}
	err := k.part(ctx, v)
	v.leave(ctx)
	r := result{kind: k, got: v.got, attempts: v.attempts, duration: v.duration, cut: v.cut, notes: v.notes}
	switch {
	case err == nil:
	case errors.Is(err, errTimeUp):
		v.differs("not finished within %s; last seen %s", t.timeout, orNone(v.last))
	case errors.Is(err, errUnreachable):
		r.err, r.notes = err, append(r.notes, err.Error())
	case errors.Is(err, errAway) || ctx.Err() != nil:
		r.err = err
	default:
		v.differs("%v", err)
	}
	if err == nil && !v.cut && v.got != k.expected && len(v.findings) == 0 {
		v.differs("got %s, expected %s", v.got, k.expected)
	}
	r.findings = v.findings
	return r
}
