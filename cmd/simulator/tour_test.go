package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
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
	tr := &tour{
		client: c, kinds: catalogue(), pace: paceFor(&scale), scale: &scale,
		timeout: 15 * time.Minute, stdout: &stdout, stderr: &stderr,
	}
	for _, a := range adjust {
		a(tr)
	}
	began := time.Now()
	code := tr.run(ctx)
	return played{code, stdout.String(), stderr.String(), time.Since(began)}
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

// TestTourFindsFlaws seeds one fault at a time: the tour must name the kinds
// that show it, give the reason, and exit with 1.
func TestTourFindsFlaws(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flaws  flaws
		outage bool
		kinds  string // the verdict's list
		reason string
	}{
		"wrong end": {
			flaws:  flaws{tamper: both("SUCCESS_FAST", set("state", "FAILED"), set("outcome", "FAILED"))},
			kinds:  "SUCCESS_FAST",
			reason: "ended FAILED, expected SUCCEEDED",
		},
		"wrong outcome":             {flaws: on("job", "CPU_BURST", set("outcome", "FAILED")), kinds: "CPU_BURST", reason: "SUCCEEDED with outcome FAILED"},
		"wrong outcome in report":   {flaws: on("report", "CPU_BURST", set("outcome", "CANCELED")), kinds: "CPU_BURST", reason: "the report has outcome CANCELED"},
		"another kind":              {flaws: on("job", "IO_HEAVY", set("work_kind", "CPU_BURST")), kinds: "IO_HEAVY", reason: "of kind CPU_BURST"},
		"another job":               {flaws: on("job", "IO_HEAVY", set("job_id", "x")), kinds: "IO_HEAVY", reason: "reads as x"},
		"report of another job":     {flaws: on("report", "IO_HEAVY", set("job_id", "x")), kinds: "IO_HEAVY", reason: `the report is of job "x"`},
		"times the wrong way":       {flaws: on("job", "IO_HEAVY", set("updated_at", "1999-01-01T00:00:00Z")), kinds: "IO_HEAVY", reason: "wrong order"},
		"time not in UTC":           {flaws: on("job", "IO_HEAVY", set("updated_at", "2030-01-01T00:00:00+01:00")), kinds: "IO_HEAVY", reason: "not RFC 3339 in UTC"},
		"catalogue row changed":     {flaws: on("job", "IO_HEAVY", set("definition", map[string]any{"duration_ms": 1})), kinds: "IO_HEAVY", reason: "definition.duration_ms is 1, the catalogue has 15000"},
		"early start":               {flaws: flaws{early: 500 * time.Millisecond}, kinds: "SCHEDULED_ON_TIME, SCHEDULED_LATE_RECOVERY", reason: "the job started 498ms before its execution_at"},
		"late start":                {flaws: flaws{late: 3 * time.Second}, kinds: "SCHEDULED_ON_TIME", reason: "queued 3s after its time, allowed are 2s"},
		"late after the outage":     {flaws: flaws{late: 10 * time.Second}, outage: true, kinds: "SCHEDULED_ON_TIME, SCHEDULED_LATE_RECOVERY", reason: "after the service was back, allowed are 5s"},
		"ran during the outage":     {flaws: flaws{early: 8 * time.Second}, outage: true, kinds: "CANCEL_BEFORE_START, SCHEDULED_ON_TIME, SCHEDULED_LATE_RECOVERY", reason: "before the service was started again"},
		"execution_at changed":      {flaws: on("job", "SCHEDULED_ON_TIME", set("execution_at", nil)), kinds: "SCHEDULED_ON_TIME", reason: "execution_at (none)"},
		"far future runs":           {flaws: flaws{early: 30 * 24 * time.Hour}, kinds: "SCHEDULED_FAR_FUTURE", reason: "the job started 719h59m59.998s before its execution_at"},
		"work too short":            {flaws: flaws{quick: true}, kinds: "SUCCESS_SLOW", reason: "the work took 0s, at this time scale it must take 1m30s"},
		"no time to cancel":         {flaws: flaws{quick: true}, kinds: "CANCEL_DURING_RUN", reason: "each of 5 jobs had ended before it could be canceled"},
		"duration invented":         {flaws: on("report", "RUNS_LONG", set("duration_ms", 500_000)), kinds: "RUNS_LONG", reason: "the report has duration_ms 500000, but 1m50s"},
		"no finish":                 {flaws: on("report", "RUNS_LONG", set("finished_at", nil)), kinds: "RUNS_LONG", reason: "lacks finished_at"},
		"no start":                  {flaws: on("report", "RUNS_LONG", set("started_at", nil)), kinds: "RUNS_LONG", reason: "no started_at"},
		"missing event":             {flaws: on("report", "MEMORY_SPIKE", events(func(e []any) []any { return append(e[:2:2], e[3:]...) })), kinds: "MEMORY_SPIKE", reason: "event 3 (job.running) has seq 4"},
		"missing event, renumbered": {flaws: on("report", "MEMORY_SPIKE", events(func(e []any) []any { return renumber(append(e[:2:2], e[3:]...)) })), kinds: "MEMORY_SPIKE", reason: "leaves ASSIGNED, but the job was QUEUED"},
		"missing last event":        {flaws: on("report", "MEMORY_SPIKE", events(func(e []any) []any { return e[:len(e)-1] })), kinds: "MEMORY_SPIKE", reason: "the events end in RUNNING"},
		"no events":                 {flaws: on("report", "MEMORY_SPIKE", events(func([]any) []any { return nil })), kinds: "MEMORY_SPIKE", reason: "the report has no events"},
		"swapped events":            {flaws: on("report", "MEMORY_SPIKE", events(func(e []any) []any { e[2], e[3] = e[3], e[2]; return e })), kinds: "MEMORY_SPIKE", reason: "event 3 (job.running) has seq 4"},
		"swapped, renumbered":       {flaws: on("report", "MEMORY_SPIKE", events(func(e []any) []any { e[2], e[3] = e[3], e[2]; return renumber(e) })), kinds: "MEMORY_SPIKE", reason: "event 4 (job.assigned) is earlier"},
		"event without work_kind":   {flaws: on("report", "MEMORY_SPIKE", event(1, "data", nil)), kinds: "MEMORY_SPIKE", reason: "event 2 (job.queued) has work_kind (none)"},
		"duplicate keys forgotten":  {flaws: flaws{forgetKeys: true}, kinds: "DUPLICATE_SUBMIT_SAME_KEY", reason: "one idempotency key gave two jobs"},
		"keys mixed up":             {flaws: flaws{oneKey: true}, kinds: "DUPLICATE_SUBMIT_DIFFERENT_KEY", reason: "two idempotency keys gave one job"},
		"retry not limited":         {flaws: flaws{endlessRetry: true}, kinds: "RETRY_LIMIT_REACHED", reason: "a retry was accepted after attempt 4 of 4"},
		"retry refused":             {flaws: flaws{refuseRetry: true}, kinds: "RETRY_ON_FAIL, RETRY_LIMIT_REACHED", reason: "refused after attempt 1 of 4"},
		"retry miscounted":          {flaws: on("retry", "RETRY_ON_FAIL", set("attempt", 1)), kinds: "RETRY_ON_FAIL", reason: "attempt 1, updated_at present: true"},
		"exhaustion not told":       {flaws: on("report", "RETRY_LIMIT_REACHED", events(func(e []any) []any { return e[:len(e)-1] })), kinds: "RETRY_LIMIT_REACHED", reason: "0 job.retries_exhausted events"},
		"foreign code":              {flaws: onFailure("FAIL_IMMEDIATE", "code", "E_OOPS"), kinds: "FAIL_IMMEDIATE", reason: `"E_OOPS", which the contract does not have`},
		"lost worker":               {flaws: onFailure("FAIL_AFTER_RETRYABLE", "code", codeWorkerUnavailable), kinds: "FAIL_AFTER_RETRYABLE", reason: "failed for another reason than its own"},
		"timeout not told":          {flaws: onFailure("RUNS_OVER_TIMEOUT", "code", "RFA_INTERNAL"), kinds: "RUNS_OVER_TIMEOUT", reason: "expected RFA_EXEC_TIMEOUT"},
		"timeout as failure":        {flaws: onFailure("RUNS_OVER_TIMEOUT", "jobStatus", "FAILED"), kinds: "RUNS_OVER_TIMEOUT", reason: "expected TIMED_OUT"},
		"wrongly retryable":         {flaws: onFailure("FAIL_AFTER_PROGRESS", "retryable", true), kinds: "FAIL_AFTER_PROGRESS", reason: "failure.retryable is true, expected false"},
		"not retryable":             {flaws: onFailure("FAIL_AFTER_RETRYABLE", "retryable", false), kinds: "FAIL_AFTER_RETRYABLE", reason: "failure.retryable is false, expected true"},
		"retryable not told":        {flaws: onFailure("FAIL_AFTER_RETRYABLE", "retryable", nil), kinds: "FAIL_AFTER_RETRYABLE", reason: "failure.retryable is missing"},
		"no retryAfter":             {flaws: onFailure("FAIL_AFTER_RETRYABLE", "retryAfter", nil), kinds: "FAIL_AFTER_RETRYABLE", reason: "without a retryAfter"},
		"failure of another job":    {flaws: onFailure("FAIL_IMMEDIATE", "jobId", "x"), kinds: "FAIL_IMMEDIATE", reason: `failure.jobId is "x"`},
		"no failure":                {flaws: on("job", "FAIL_IMMEDIATE", set("failure", nil)), kinds: "FAIL_IMMEDIATE", reason: "the failed job carries no failure"},
		"failure of a good job":     {flaws: on("job", "SUCCESS_NORMAL", set("failure", map[string]any{})), kinds: "SUCCESS_NORMAL", reason: "the SUCCEEDED job carries a failure"},
		"cut result":                {flaws: on("job", "PAYLOAD_LARGE", set("result", map[string]any{"size_bytes": 65536, "checksum": "x"})), kinds: "PAYLOAD_LARGE", reason: "result.size_bytes is 65536, expected 262144"},
		"result without checksum":   {flaws: on("job", "PAYLOAD_SMALL", set("result", map[string]any{"size_bytes": 1024})), kinds: "PAYLOAD_SMALL", reason: "no checksum"},
		"invalid accepted":          {flaws: flaws{acceptInvalid: true}, kinds: "PAYLOAD_INVALID", reason: "the service accepted it as job"},
		"cancel ignored":            {flaws: flaws{ignoreCancel: true}, kinds: "CANCEL_BEFORE_START, CANCEL_DURING_RUN, SCHEDULED_FAR_FUTURE", reason: "ended SUCCEEDED, expected CANCELED"},
		"canceled twice":            {flaws: flaws{tamper: secondReportGrows("CANCEL_DURING_RUN")}, kinds: "CANCEL_DURING_RUN", reason: "changed afterwards: it is CANCELED with 6 events, was CANCELED with 5"},
		"canceled too soon":         {flaws: on("report", "CANCEL_DURING_RUN", event(4, "prev_state", "ASSIGNED")), kinds: "CANCEL_DURING_RUN", reason: "canceled in ASSIGNED, expected RUNNING"},
		"no id":                     {flaws: on("receipt", "WEBHOOK_5XX", set("job_id", "")), kinds: "WEBHOOK_5XX", reason: "without a job_id"},
		"odd acceptance":            {flaws: on("receipt", "WEBHOOK_5XX", set("state", "RUNNING"), set("created_at", nil)), kinds: "WEBHOOK_5XX", reason: "accepted as RUNNING"},
		"scheduled but queued":      {flaws: on("receipt", "SCHEDULED_ON_TIME", set("state", "QUEUED")), kinds: "SCHEDULED_ON_TIME", reason: "accepted as QUEUED, expected CREATED"},
		"more attempts than that":   {flaws: on("job", "WEBHOOK_5XX", set("max_attempts", 0)), kinds: "WEBHOOK_5XX", reason: "max_attempts 0"},
		"never ends":                {flaws: flaws{stuck: "WEBHOOK_TIMEOUT"}, kinds: "WEBHOOK_TIMEOUT", reason: "not finished within 15m0s; last seen RUNNING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(1)
			f.flaws = c.flaws
			adjust := []func(*tour){func(*tour) {}}
			if c.outage {
				adjust[0] = withOutage(f)
			}
			if f.flaws.quick || f.flaws.early > time.Hour || f.flaws.ignoreCancel {
				adjust = append(adjust, only(strings.Split(c.kinds, ", ")...))
			}
			p := play(t, f, adjust...)
			require.Equal(t, exitDifferent, p.code, p.stdout+p.stderr)
			require.Contains(t, p.stdout, " kinds differ: "+c.kinds+".\n")
			require.Contains(t, p.stdout, c.reason)
		})
	}
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

// on makes a flaw that edits one kind's answers of one sort.
func on(what, kind string, edits ...func(map[string]any)) flaws {
	return flaws{tamper: func(w string, j *fakeJob, body map[string]any) {
		if w != what || j.Kind != kind || what == "job" && !isFinal(j.State) {
			return
		}
		for _, edit := range edits {
			edit(body)
		}
	}}
}

// both edits the job and its report alike.
func both(kind string, edits ...func(map[string]any)) func(string, *fakeJob, map[string]any) {
	job, report := on("job", kind, edits...), on("report", kind, edits...)
	return func(what string, j *fakeJob, body map[string]any) {
		job.tamper(what, j, body)
		report.tamper(what, j, body)
	}
}

func onFailure(kind, member string, value any) flaws {
	return on("job", kind, func(body map[string]any) { body["failure"].(map[string]any)[member] = value })
}

func set(member string, value any) func(map[string]any) {
	return func(body map[string]any) { body[member] = value }
}

func events(edit func([]any) []any) func(map[string]any) {
	return func(body map[string]any) { body["events"] = edit(body["events"].([]any)) }
}

// event edits one member of one event, counted from 0.
func event(i int, member string, value any) func(map[string]any) {
	return events(func(e []any) []any {
		e[i].(map[string]any)[member] = value
		return e
	})
}

func renumber(e []any) []any {
	for i := range e {
		e[i].(map[string]any)["seq"] = i + 1
	}
	return e
}

// secondReportGrows adds an event to every report of the kind but the first.
func secondReportGrows(kind string) func(string, *fakeJob, map[string]any) {
	var once sync.Once
	return func(what string, j *fakeJob, body map[string]any) {
		if what != "report" || j.Kind != kind {
			return
		}
		first := false
		once.Do(func() { first = true })
		if e := body["events"].([]any); !first {
			body["events"] = append(e, e[len(e)-1])
		}
	}
}
