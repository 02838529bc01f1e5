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
func play(t *testing.T, f *fake, adjust ...func(*tour)) (p played) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { p = playHere(t.Context(), t, f, adjust...) })
	return p
}

// playHere is play for tests that are in a bubble already.
func playHere(ctx context.Context, t *testing.T, f *fake, adjust ...func(*tour)) played {
	t.Helper()
	c, err := newClient("http://forgerun.test/v1/", "", f)
	require.NoError(t, err)
	scale := f.scale
	var stdout, stderr bytes.Buffer
	r := newReceiver("http://receiver.test/hooks")
	f.receiver = handlerTransport{r}
	pace := paceFor(&scale)
	pace.deliveryTries = fakeWebhookTries
	tr := &tour{
		client: c, receiver: r, kinds: catalogue(), pace: pace, scale: &scale,
		timeout: 15 * time.Minute, stdout: &stdout, stderr: &stderr,
	}
	for _, a := range adjust {
		a(tr)
	}
	began := time.Now()
	code := tr.run(ctx)
	p := played{code, stdout.String(), stderr.String(), time.Since(began)}
	f.sending.Wait()
	return p
}

func only(names ...string) func(*tour) {
	return func(t *tour) {
		t.kinds = nil
		for _, k := range catalogue() {
			for _, name := range names {
				if k.name == name {
					t.kinds = append(t.kinds, k)
				}
			}
		}
	}
}

// withOutage lets the tour take the fake down.
func withOutage(f *fake) func(*tour) {
	return func(t *tour) {
		t.outage = func(ctx context.Context, until time.Time) (times outageTimes, err error) {
			f.stop()
			times.down = time.Now()
			if err := sleep(ctx, time.Until(until)); err != nil {
				return times, err
			}
			times.restarted = time.Now()
			f.start()
			times.ready = time.Now()
			return times, nil
		}
	}
}

func TestCatalogueIsComplete(t *testing.T) {
	t.Parallel()
	rows := catalogue()
	require.Len(t, rows, 31)
	for i, want := range job.Kinds() {
		spec, _ := job.SpecOf(want, 0)
		got := rows[i]
		require.Equal(t, string(want), got.name)
		require.Equal(t, spec.PayloadSize, got.payload, got.name)
		if want != job.RunsOverTimeout {
			require.Equal(t, spec.DurationMS, got.duration.Milliseconds(), got.name)
		}
		if want != job.PayloadInvalid {
			require.Equal(t, spec.Expected, got.outcome, got.name)
		}
		require.Equal(t, spec.ShouldFail, got.failure != nil, got.name)
	}
	for _, c := range job.Codes[:22] {
		require.True(t, contractCodes[string(c.Code)], c.Code)
	}
	require.Len(t, contractCodes, 22)
}

func TestTourOfAPerfectService(t *testing.T) {
	t.Parallel()
	for name, adjust := range map[string]func(*fake) []func(*tour){
		"full length":    func(f *fake) []func(*tour) { f.scale = 1; return nil },
		"fast":           func(f *fake) []func(*tour) { f.scale = 0.02; return nil },
		"unknown scale":  func(*fake) []func(*tour) { return []func(*tour){func(t *tour) { t.pace, t.scale = paceFor(nil), nil }} },
		"with an outage": func(f *fake) []func(*tour) { return []func(*tour){withOutage(f)} },
		"busy at first": func(f *fake) []func(*tour) {
			return []func(*tour){func(t *tour) {
				t.client.key = fakeKey
				f.scale = 1
				*t.scale = 1
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
	for i, k := range catalogue() {
		require.Equal(t, k.name, strings.Fields(lines[i+1])[0], "rows are in the catalogue's order")
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
		require.Contains(t, p.stdout, "answered 503 RFA_STORAGE_UNAVAILABLE (Told so by the test.), expected 200")
		require.Less(t, p.took, 3*time.Minute)
	})
}

func TestTourTimeLimit(t *testing.T) {
	t.Parallel()
	f := newFake(1)
	p := play(t, f, func(tr *tour) { tr.timeout = time.Minute })
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
