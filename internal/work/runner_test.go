package work

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

const limit = 120 * time.Second

var requestedAt = time.Date(2030, 1, 31, 12, 0, 0, 123456000, time.UTC)

func define(t testing.TB, kind job.Kind) job.Definition {
	t.Helper()
	d := must(job.Catalogue{MaxRuntime: limit}.Define(job.Execute, kind, requestedAt, nil))(t)
	return d
}

func runnable() []job.Kind {
	var kinds []job.Kind
	for _, k := range job.Kinds() {
		if k != job.PayloadInvalid {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// Under synctest's clock, CPU_BURST never ends, because the clock does not advance while a goroutine hashes.
func inBubble(k job.Kind, scale float64) bool { return k != job.CPUBurst || scale == 0 }

type recorder struct{ seen []job.Progress }

func (r *recorder) report(p job.Progress) { r.seen = append(r.seen, p) }

func (r *recorder) requireOrderly(t *testing.T, succeeded bool) {
	t.Helper()
	require.NotEmpty(t, r.seen)
	require.LessOrEqual(t, len(r.seen), 12)
	require.Equal(t, 0, r.seen[0].Percentage)
	last := r.seen[0]
	for i, p := range r.seen {
		require.GreaterOrEqual(t, p.Percentage, last.Percentage)
		require.GreaterOrEqual(t, p.StepsCompleted, last.StepsCompleted)
		require.GreaterOrEqual(t, p.ItemsProcessed, last.ItemsProcessed)
		require.False(t, time.Time(p.UpdatedAt).Before(time.Time(last.UpdatedAt)))
		require.Equal(t, time.UTC, time.Time(p.UpdatedAt).Location())
		require.Equal(t, p.StepsCompleted*100/p.StepsTotal, p.Percentage)
		require.Equal(t, r.seen[0].ItemsTotal, p.ItemsTotal)
		require.NotEmpty(t, p.Phase)
		if i > 0 {
			require.Greater(t, p.Percentage, last.Percentage, "each report shows progress")
		}
		last = p
	}
	require.Equal(t, succeeded, last.Percentage == 100, "100 %% is reported only on success: %+v", last)
	if succeeded {
		require.Equal(t, last.StepsTotal, last.StepsCompleted)
		require.Equal(t, last.ItemsTotal, last.ItemsProcessed)
		require.Equal(t, "DONE", last.Phase)
	}
}

func requireBody(t *testing.T, d job.Definition, result *job.Result) {
	t.Helper()
	require.Len(t, result.Body, d.PayloadSize)
	require.Equal(t, sha256.Sum256(result.Body), result.SHA256)
	if d.WorkKind != job.ManySmallOutputs {
		require.Equal(t, "application/json", result.MediaType)
		var doc struct {
			WorkKind job.Kind `json:"work_kind"`
			Seed     int64    `json:"seed"`
			Data     string   `json:"data"`
		}
		require.NoError(t, json.Unmarshal(result.Body, &doc))
		require.Equal(t, d.WorkKind, doc.WorkKind)
		require.Equal(t, d.Seed, doc.Seed)
		return
	}
	require.Equal(t, "application/x-ndjson", result.MediaType)
	text, ends := bytes.CutSuffix(result.Body, []byte("\n"))
	require.True(t, ends)
	chunks := bytes.Split(text, []byte("\n"))
	require.Greater(t, len(chunks), 100)
	for i, chunk := range chunks {
		var doc struct {
			Line int `json:"line"`
		}
		require.NoError(t, json.Unmarshal(chunk, &doc))
		require.Equal(t, i+1, doc.Line)
	}
}

// Promise: contract 6b
func TestRunEveryKind(t *testing.T) {
	t.Parallel()
	for _, scale := range []float64{0, 0.001, 1, 3} {
		for _, kind := range runnable() {
			if !inBubble(kind, scale) {
				continue
			}
			for attempt := 1; attempt <= 2; attempt++ {
				t.Run(fmt.Sprintf("%s/scale %v/attempt %d", kind, scale, attempt), func(t *testing.T) {
					t.Parallel()
					dir := t.TempDir()
					synctest.Test(t, func(t *testing.T) {
						runOnce(t, Config{TimeScale: scale, Limit: limit, TempDir: dir}, kind, attempt)
					})
				})
			}
		}
	}
}

func runOnce(t *testing.T, cfg Config, kind job.Kind, attempt int) {
	d := define(t, kind)
	want := time.Duration(float64(d.DurationMS) * 1e6 * cfg.TimeScale)
	if kind == job.RunsOverTimeout {
		want = max(want, limit+time.Second)
	}
	var reports recorder
	start := time.Now()
	result, err := New(cfg).Run(t.Context(), d, attempt, job.Observer{Progress: reports.report})
	require.InDelta(t, want, time.Since(start), float64(time.Microsecond))

	// This repeats the catalogue (API contract, section 6) instead of calling the code under test.
	fails := d.ShouldFail && (kind != job.RetryOnFail || attempt == 1)
	reports.requireOrderly(t, !fails)
	if fails {
		var failure *Failure
		require.ErrorAs(t, err, &failure)
		reason, _ := kind.FailsOn(attempt)
		require.Equal(t, reason, failure.Reason)
		require.Equal(t, reason, failure.FailureReason())
		require.Contains(t, err.Error(), string(reason))
		require.Nil(t, result)
		return
	}
	require.NoError(t, err)
	requireBody(t, d, result)
}

var errStopped = errors.New("stopped by the test")

func TestCancelStopsEveryKindAtOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range runnable() {
		if !inBubble(kind, 1) {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				d := define(t, kind)
				ctx, cancel := context.WithCancelCause(t.Context())
				after := time.Duration(d.DurationMS) * time.Millisecond * 55 / 100
				time.AfterFunc(after, func() { cancel(errStopped) })
				var reports recorder
				start := time.Now()
				result, err := New(Config{TimeScale: 1, Limit: limit, TempDir: dir}).Run(ctx, d, 1, job.Observer{Progress: reports.report})
				require.Equal(t, after, time.Since(start), "the run stops at once")
				require.Equal(t, errStopped, err)
				require.Nil(t, result)
				reports.requireOrderly(t, false)
			})
		})
	}
}

func TestCancelInLastStepIsNoSuccess(t *testing.T) {
	t.Parallel()
	for _, kind := range runnable() {
		if kind == job.FailImmediate || kind == job.RunsOverTimeout {
			continue // FAIL_IMMEDIATE reports no 50 %; RUNS_OVER_TIMEOUT does not end at once
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := New(Config{TempDir: t.TempDir()}).Run(ctx, define(t, kind), 1, job.Observer{Progress: func(p job.Progress) {
			if p.Percentage == 50 {
				cancel(errStopped)
			}
		}})
		require.Equal(t, errStopped, err)
	}
}

func TestBadDefinitionRunsNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*job.Definition){
		"unknown kind":    func(d *job.Definition) { d.WorkKind = "DANCE" },
		"PAYLOAD_INVALID": func(d *job.Definition) { d.WorkKind = job.PayloadInvalid },
		"too large":       func(d *job.Definition) { d.PayloadSize = 1 << 40 },
	} {
		d := define(t, job.PayloadSmall)
		change(&d)
		var reports recorder
		_, err := New(Config{}).Run(t.Context(), d, 1, job.Observer{Progress: reports.report})
		require.ErrorIs(t, err, job.ErrBadDefinition, name)
		require.Empty(t, reports.seen)
	}
}

func TestResultDependsOnlyOnDefinition(t *testing.T) {
	t.Parallel()
	body := func(cfg Config, d job.Definition, attempt int) string {
		result := must(New(cfg).Run(t.Context(), d, attempt, job.Observer{}))(t)
		return string(result.Body)
	}
	now := Config{}
	later := Config{TimeScale: 0.0001}
	for _, kind := range []job.Kind{job.PayloadSmall, job.LargeOutput, job.ManySmallOutputs, job.RetryOnFail} {
		d := define(t, kind)
		first := body(now, d, 2)
		require.Equal(t, first, body(now, d, 2))
		require.Equal(t, first, body(later, d, 3), "attempt and speed do not change the result")
		other := d
		other.Seed++
		require.NotEqual(t, first, body(now, other, 2))
		other = d
		other.PayloadSize = 2048
		require.Len(t, body(now, other, 2), other.PayloadSize)
	}
}

// The bytes must not change, because clients compare the results of different versions.
func TestResultBytesNeverChange(t *testing.T) {
	t.Parallel()
	for kind, want := range map[job.Kind]string{
		job.PayloadSmall:     "474521913bc177fe61fed8c07274a8bd2e78b3c67f8cb94cb9ac380ff1bfc553",
		job.ManySmallOutputs: "0139fba6e449344b5a7746bac4a08183b4cf823e8fe1f8b1fdc9088c95a4847c",
	} {
		result := must(New(Config{}).Run(t.Context(), define(t, kind), 1, job.Observer{}))(t)
		require.Equal(t, want, hex.EncodeToString(result.SHA256[:]), string(result.Body[:200]))
	}
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}
