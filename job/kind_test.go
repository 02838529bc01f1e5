package job_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

const maxRuntime = 120 * time.Second

type row struct {
	kind       job.Kind
	durationMS int64
	shouldFail bool
	sizeKB     int
	expected   string
}

var catalogue = []row{
	{"SUCCESS_FAST", 1_000, false, 4, "SUCCEEDED"},
	{"SUCCESS_NORMAL", 10_000, false, 16, "SUCCEEDED"},
	{"SUCCESS_SLOW", 90_000, false, 32, "SUCCEEDED"},
	{"FAIL_IMMEDIATE", 500, true, 1, "FAILED"},
	{"FAIL_AFTER_PROGRESS", 20_000, true, 8, "FAILED"},
	{"FAIL_AFTER_RETRYABLE", 5_000, true, 8, "FAILED"},
	{"RUNS_LONG", 110_000, false, 32, "SUCCEEDED"},
	{"RUNS_OVER_TIMEOUT", 120_000 + 1_000, true, 8, "FAILED"},
	{"CPU_BURST", 8_000, false, 4, "SUCCEEDED"},
	{"MEMORY_SPIKE", 12_000, false, 64, "SUCCEEDED"},
	{"IO_HEAVY", 15_000, false, 32, "SUCCEEDED"},
	{"MANY_SMALL_OUTPUTS", 9_000, false, 16, "SUCCEEDED"},
	{"LARGE_OUTPUT", 9_000, false, 256, "SUCCEEDED"},
	{"CANCEL_BEFORE_START", 5_000, false, 4, "CANCELED"},
	{"CANCEL_DURING_RUN", 10_000, false, 4, "CANCELED"},
	{"RETRY_ON_FAIL", 3_000, true, 4, "FAILED"},
	{"RETRY_LIMIT_REACHED", 3_000, true, 4, "FAILED"},
	{"DUPLICATE_SUBMIT_SAME_KEY", 2_000, false, 4, "SUCCEEDED"},
	{"DUPLICATE_SUBMIT_DIFFERENT_KEY", 2_000, false, 4, "SUCCEEDED"},
	{"WEBHOOK_SUCCESS", 2_000, false, 4, "SUCCEEDED"},
	{"WEBHOOK_TIMEOUT", 2_000, false, 4, "SUCCEEDED"},
	{"WEBHOOK_5XX", 2_000, false, 4, "SUCCEEDED"},
	{"WEBHOOK_RETRIES_EXHAUSTED", 2_000, false, 4, "SUCCEEDED"},
	{"WEBHOOK_SLOW_RECEIVER", 2_000, false, 4, "SUCCEEDED"},
	{"SCHEDULED_ON_TIME", 2_000, false, 4, "SUCCEEDED"},
	{"SCHEDULED_LATE_RECOVERY", 2_000, false, 4, "SUCCEEDED"},
	{"SCHEDULED_FAR_FUTURE", 2_000, false, 4, "SUCCEEDED"},
	{"PAYLOAD_SMALL", 2_000, false, 1, "SUCCEEDED"},
	{"PAYLOAD_MEDIUM", 2_000, false, 16, "SUCCEEDED"},
	{"PAYLOAD_LARGE", 2_000, false, 256, "SUCCEEDED"},
	{"PAYLOAD_INVALID", 0, false, 0, "REJECTED"},
}

// Promise: contract 6a
// Promise: contract 6b
func TestCatalogue(t *testing.T) {
	t.Parallel()
	require.Len(t, catalogue, 31)
	require.Len(t, job.Kinds(), 31)
	for i, want := range catalogue {
		require.Equal(t, want.kind, job.Kinds()[i])
		require.True(t, want.kind.Valid())
		spec, _ := job.SpecOf(want.kind, maxRuntime)
		require.Equal(t, want.shouldFail, spec.Reason != "", "%s: a failing kind has a reason, no other has", want.kind)
		for _, typ := range job.Types[:2] {
			require.Equal(t, job.Definition{
				WorkKind: want.kind, DurationMS: want.durationMS, ShouldFail: want.shouldFail,
				PayloadSize: want.sizeKB * 1024, ExpectedOutcome: want.expected, Seed: 1_896_091_200_123_456,
			}, define(t, fullCatalogue(), typ, want.kind, requestedAt))
		}
	}
	_, err := fullCatalogue().Define(job.Execute, "DANCE", requestedAt, nil)
	require.ErrorContains(t, err, `"DANCE"`)
}

// Promise: contract 6c
func TestRunsOverTimeoutFollowsTheLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[time.Duration]int64{
		time.Second: 2_000, 1500 * time.Millisecond: 2_500, time.Hour: 3_601_000,
	} {
		s, _ := job.SpecOf(job.RunsOverTimeout, limit)
		require.Equal(t, want, s.DurationMS)
		other, _ := job.SpecOf(job.RunsLong, limit)
		require.EqualValues(t, 110_000, other.DurationMS)
	}
}

// Promise: contract 6b
func TestFailsOn(t *testing.T) {
	t.Parallel()
	reasons := map[job.Kind]job.Reason{
		"FAIL_IMMEDIATE":       "failed-immediately",
		"FAIL_AFTER_PROGRESS":  "failed-after-progress",
		"FAIL_AFTER_RETRYABLE": "dependency-failed",
		"RUNS_OVER_TIMEOUT":    "job-timed-out",
		"RETRY_ON_FAIL":        "failed-once",
		"RETRY_LIMIT_REACHED":  "failed-again",
	}
	for _, k := range job.Kinds() {
		for attempt := 1; attempt <= 5; attempt++ {
			want := reasons[k]
			if k == "RETRY_ON_FAIL" && attempt > 1 {
				want = ""
			}
			got, fails := k.FailsOn(attempt)
			require.Equal(t, want, got, "%s, attempt %d", k, attempt)
			require.Equal(t, want != "", fails, "%s, attempt %d", k, attempt)
		}
	}
}

var requestedAt = time.Date(2030, 1, 31, 12, 0, 0, 123_456_000, time.UTC)

func fullCatalogue() job.Catalogue {
	return job.Catalogue{Types: job.Types, Kinds: job.Kinds(), FailProbability: 0.2, MaxRuntime: maxRuntime}
}

func define(t *testing.T, c job.Catalogue, typ job.Type, kind job.Kind, at time.Time) job.Definition {
	t.Helper()
	d := must(c.Define(typ, kind, at, nil))(t)
	return d
}

// Promise: contract 6a
func TestDefinitionDependsOnTheMomentAlone(t *testing.T) {
	t.Parallel()
	elsewhere := time.FixedZone("", 5*3600)
	for i := range 1000 {
		at := requestedAt.Add(time.Duration(i) * time.Microsecond)
		first := define(t, fullCatalogue(), job.Execute, "", at)
		require.Equal(t, at.UnixMicro(), first.Seed)
		require.Equal(t, first, define(t, fullCatalogue(), job.Execute, "", at))
		require.Equal(t, first, define(t, fullCatalogue(), job.Deferred, "", at))
		require.Equal(t, first, define(t, fullCatalogue(), job.Execute, "", at.In(elsewhere)))
		require.Equal(t, first, define(t, fullCatalogue(), job.Execute, first.WorkKind, at), "a named kind gives the same definition")
	}
}

// Promise: contract 6a
// Promise: contract 6d
func TestDrawFollowsFailProbability(t *testing.T) {
	t.Parallel()
	const draws = 20_000
	for _, probability := range []float64{0, 0.2, 0.5, 0.9, 1} {
		c := fullCatalogue()
		c.FailProbability = probability
		fails, counts := 0, map[job.Kind]int{}
		for i := range draws {
			at := requestedAt.Add(time.Duration(i)*time.Microsecond + time.Duration(i%7)*time.Hour)
			d := define(t, c, job.Execute, "", at)
			counts[d.WorkKind]++
			if d.ShouldFail {
				fails++
			}
		}
		require.InDelta(t, probability, float64(fails)/draws, 0.02)
		require.Zero(t, counts[job.PayloadInvalid])
		for _, r := range catalogue[:30] {
			share := (1 - probability) / 24
			if r.shouldFail {
				share = probability / 6
			}
			require.InDelta(t, share*draws, counts[r.kind], 0.15*share*draws+30, r.kind)
		}
	}
}

func TestDrawKeepsToTheAllowedKinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		allowed     []job.Kind
		probability float64
		want        []job.Kind
	}{
		"one of each": {[]job.Kind{job.SuccessFast, job.FailImmediate, job.PayloadInvalid}, 0.5,
			[]job.Kind{job.SuccessFast, job.FailImmediate}},
		"no failing kind allowed":      {[]job.Kind{job.SuccessFast, job.RunsLong}, 1, []job.Kind{job.SuccessFast, job.RunsLong}},
		"one kind and PAYLOAD_INVALID": {[]job.Kind{job.PayloadInvalid, job.IOHeavy}, 0.2, []job.Kind{job.IOHeavy}},
	} {
		drawn := map[job.Kind]bool{}
		for i := range 200 {
			cat := job.Catalogue{Kinds: c.allowed, FailProbability: c.probability, MaxRuntime: maxRuntime}
			drawn[define(t, cat, job.Execute, "", requestedAt.Add(time.Duration(i)*time.Microsecond)).WorkKind] = true
		}
		want := map[job.Kind]bool{}
		for _, k := range c.want {
			want[k] = true
		}
		require.Equal(t, want, drawn, name)
	}
	for _, kinds := range [][]job.Kind{nil, {job.PayloadInvalid}} {
		_, err := job.Catalogue{Kinds: kinds}.Define(job.Execute, "", requestedAt, nil)
		require.Error(t, err, "no kind can be drawn")
	}
}

func TestEmitEvent(t *testing.T) {
	t.Parallel()
	c := fullCatalogue()
	c.FailProbability = 1
	own := &job.Emission{Name: "order.paid", Data: json.RawMessage(`{"n":1}`)}
	d, err := c.Define(job.EmitEvent, "", requestedAt, own)
	require.NoError(t, err)
	require.Equal(t, own, d.Emit)
	require.Equal(t, job.SuccessFast, d.WorkKind, "EMIT_EVENT never draws a failing kind")

	d = must(c.Define(job.EmitEvent, job.RetryOnFail, requestedAt, nil))(t)
	require.Equal(t, &job.Emission{Name: "event.emitted"}, d.Emit)
	require.Equal(t, job.RetryOnFail, d.WorkKind, "a named kind is kept")

	d = must(c.Define(job.Execute, "", requestedAt, own))(t)
	require.Nil(t, d.Emit)
}

func TestValidateDefinition(t *testing.T) {
	t.Parallel()
	longest := fullCatalogue()
	longest.MaxRuntime = 24 * time.Hour
	require.NoError(t, define(t, longest, job.Execute, job.RunsOverTimeout, requestedAt).Validate())

	for name, damage := range map[string]func(*job.Definition){
		"empty":         func(d *job.Definition) { *d = job.Definition{} },
		"kind":          func(d *job.Definition) { d.WorkKind = "DANCE" },
		"banned kind":   func(d *job.Definition) { d.WorkKind = job.PayloadInvalid },
		"duration < 0":  func(d *job.Definition) { d.DurationMS = -1 },
		"duration huge": func(d *job.Definition) { d.DurationMS = 25*3_600_000 + 1 },
		"size < 1 KiB":  func(d *job.Definition) { d.PayloadSize = 1023 },
		"size > 256 KB": func(d *job.Definition) { d.PayloadSize = 256*1024 + 1 },
	} {
		d := define(t, fullCatalogue(), job.Execute, job.SuccessFast, requestedAt)
		damage(&d)
		require.ErrorIs(t, d.Validate(), job.ErrBadDefinition, name)
	}
}
