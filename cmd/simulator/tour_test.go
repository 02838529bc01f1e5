package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/load"
	"github.com/forgerun/forgerun/internal/simulator/receiver"
	"github.com/forgerun/forgerun/internal/simulator/tour"
	"github.com/forgerun/forgerun/job"
)

// played is a tour that has ended.
type played struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// play runs a tour of the fake on virtual time: it takes no real time and no
// race between tour and fake is left to luck.
func play(t *testing.T, f *fake, adjust ...func(*tour.Options)) (p played) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { p = playHere(t.Context(), t, f, adjust...) })
	return p
}

// playHere is play for tests that are in a bubble already.
func playHere(ctx context.Context, t *testing.T, f *fake, adjust ...func(*tour.Options)) played {
	t.Helper()
	scale := f.scale
	var stdout, stderr bytes.Buffer
	o := tour.Options{
		URL: "http://forgerun.test/v1/", Transport: f, TimeScale: &scale, DeliveryTries: fakeWebhookTries,
		Timeout: 15 * time.Minute, Patience: tour.DefaultPatience, Progress: &stderr,
		Listen: func(ro receiver.Options) (*receiver.Receiver, error) {
			r, err := receiver.New("http://receiver.test/hooks", ro)
			f.receiver = handlerTransport{r}
			return r, err
		},
	}
	for _, a := range adjust {
		a(&o)
	}
	began := time.Now()
	code := playTour(ctx, o, &stdout, &stderr)
	p := played{code, stdout.String(), stderr.String(), time.Since(began)}
	f.sending.Wait()
	return p
}

func only(names ...string) func(*tour.Options) {
	return func(o *tour.Options) { o.Kinds = names }
}

// withOutage lets the tour take the fake down.
func withOutage(f *fake) func(*tour.Options) {
	return func(o *tour.Options) {
		o.Outage = func(ctx context.Context, until time.Time) (times tour.OutageTimes, err error) {
			f.stop()
			times.Down = time.Now()
			if err := load.Sleep(ctx, time.Until(until)); err != nil {
				return times, err
			}
			times.Restarted = time.Now()
			f.start()
			times.Ready = time.Now()
			return times, nil
		}
	}
}

func TestTourOfAPerfectService(t *testing.T) {
	t.Parallel()
	for name, adjust := range map[string]func(*fake) []func(*tour.Options){
		"full length": func(f *fake) []func(*tour.Options) { f.scale = 1; return nil },
		"fast":        func(f *fake) []func(*tour.Options) { f.scale = 0.02; return nil },
		"unknown scale": func(*fake) []func(*tour.Options) {
			return []func(*tour.Options){func(o *tour.Options) { o.TimeScale = nil }}
		},
		"with an outage": func(f *fake) []func(*tour.Options) { return []func(*tour.Options){withOutage(f)} },
		"busy at first": func(f *fake) []func(*tour.Options) {
			return []func(*tour.Options){func(o *tour.Options) {
				o.Key = fakeKey
				f.scale = 1
				*o.TimeScale = 1
				time.AfterFunc(time.Millisecond, func() { f.setBusy(40) })
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(0.1)
			p := play(t, f, adjust(f)...)
			require.Equal(t, exitOK, p.code, p.stdout+p.stderr)
			require.Contains(t, p.stdout, "\nAll 31 kinds behaved as the catalogue says, in ")
			f.requireNothingLeft(t)
		})
	}
}

func TestTourTable(t *testing.T) {
	t.Parallel()
	p := play(t, newFake(1))
	lines := strings.Split(p.stdout, "\n")
	require.Equal(t, strings.Fields("KIND EXPECTED GOT ATTEMPTS DURATION OK"), strings.Fields(lines[0]))
	for i, k := range job.Kinds() {
		require.Equal(t, string(k), strings.Fields(lines[i+1])[0], "rows are in the catalogue's order")
		require.True(t, strings.HasSuffix(lines[i+1], "yes"), lines[i+1])
	}
	require.Regexp(t, `SUCCESS_SLOW +SUCCEEDED +SUCCEEDED +1 +1m30s +yes`, p.stdout)
	require.Regexp(t, `RETRY_ON_FAIL +FAILED, then SUCCEEDED +FAILED, then SUCCEEDED +2 +3s +yes`, p.stdout)
	require.Regexp(t, `RETRY_LIMIT_REACHED +FAILED, no retry left +FAILED, no retry left +4 +3s +yes`, p.stdout)
	require.Regexp(t, `CANCEL_BEFORE_START +CANCELED +CANCELED +1 +0s +yes`, p.stdout)
	require.Regexp(t, `PAYLOAD_INVALID +REJECTED +REJECTED +- +- +yes`, p.stdout)
	require.Contains(t, p.stderr, "of 31 kinds finished")
}

func TestTourServiceGoesAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		time.AfterFunc(20*time.Second, f.stop)
		p := playHere(t.Context(), t, f)
		require.Equal(t, exitUnusable, p.code)
		require.Contains(t, p.stderr, "simulator: the service at http://forgerun.test stopped answering during the tour")
		require.Regexp(t, `SUCCESS_FAST .*yes`, p.stdout)
		require.Regexp(t, `RUNS_LONG .*\?`, p.stdout)
		require.Contains(t, p.stdout, "kinds could not be judged: ")
		require.Less(t, p.took, time.Minute)
	})
}

func TestTourSurvivesAShortAbsence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		time.AfterFunc(20*time.Second, f.stop)
		time.AfterFunc(25*time.Second, f.start)
		p := playHere(t.Context(), t, f)
		require.Equal(t, exitOK, p.code, p.stdout+p.stderr)
	})
}

// TestTourServiceStaysBusy: a service that goes on refusing is judged, not
// waited for without end.
func TestTourServiceStaysBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		time.AfterFunc(30*time.Second, func() { f.setBusy(1_000_000) })
		p := playHere(t.Context(), t, f)
		require.Equal(t, exitDifferent, p.code, p.stderr)
		require.Contains(t, p.stdout, "3 of 31 kinds differ: SUCCESS_SLOW, RUNS_LONG, RUNS_OVER_TIMEOUT.")
		require.Contains(t, p.stdout, "was answered 503 for 1m30s")
		require.Less(t, p.took, 3*time.Minute)
	})
}

func TestTourTimeLimit(t *testing.T) {
	t.Parallel()
	f := newFake(1)
	p := play(t, f, func(o *tour.Options) { o.Timeout = time.Minute })
	require.Equal(t, exitDifferent, p.code)
	require.Contains(t, p.stdout, "3 of 31 kinds differ: SUCCESS_SLOW, RUNS_LONG, RUNS_OVER_TIMEOUT.")
	require.Contains(t, p.stdout, "not finished within 1m0s; last seen RUNNING")
	f.requireNothingLeft(t)
}

func TestTourInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2*time.Second, func() { cancel(io.EOF) }) // as a signal does, with a cause of its own
		p := playHere(ctx, t, f)
		require.Equal(t, exitInterrupted, p.code)
		require.Contains(t, p.stderr, "interrupted")
		require.Empty(t, p.stdout)
		f.requireNothingLeft(t)
	})
}

func (f *fake) requireNothingLeft(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.Jobs {
		require.True(t, isFinal(j.State), "%s is left %s", j.Kind, j.State)
	}
}

func (f *fake) setBusy(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy = n
}
