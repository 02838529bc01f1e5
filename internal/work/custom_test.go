package work

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func ref[T any](v T) *T { return &v }

func defineCustom(b job.Behavior) job.Definition {
	return job.DefineCustom(job.Execute, &b, requestedAt, nil)
}

type moment struct {
	at   time.Duration
	what any
}

func observe(seen *[]moment) job.Observer {
	start := time.Now()
	return job.Observer{
		Progress: func(p job.Progress) { *seen = append(*seen, moment{time.Since(start), p.Percentage}) },
		Emit: func(_ int, e job.Emission) error {
			*seen = append(*seen, moment{time.Since(start), e.Name})
			return nil
		},
	}
}

const second = time.Second

func TestCustomTimeline(t *testing.T) {
	t.Parallel()
	behavior := job.Behavior{Duration: 10 * second, Steps: 4,
		Failures: []job.PlannedFailure{{Attempts: []int{1}, After: ref(6 * second)}, {Attempts: []int{2}}},
		Emit: []job.PlannedEvent{{Emission: job.Emission{Name: "b"}, After: 7 * second},
			{Emission: job.Emission{Name: "a"}, After: 5 * second}}}
	all := []moment{{0, 0}, {2500 * time.Millisecond, 25}, {5 * second, "a"}, {5 * second, 50}, {7 * second, "b"},
		{7500 * time.Millisecond, 75}, {10 * second, 100}}
	for attempt, want := range map[int][]moment{1: all[:4], 2: all[:6], 3: all} {
		for _, scale := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				var seen []moment
				start := time.Now()
				result, err := New(Config{TimeScale: float64(scale)}).Run(t.Context(), defineCustom(behavior), attempt, observe(&seen))
				took := time.Since(start)
				for i := range seen {
					seen[i].at /= time.Duration(scale)
				}
				require.Equal(t, want, seen)
				if attempt == 3 {
					require.NoError(t, err)
					require.Len(t, result.Body, 1024)
					require.Equal(t, 10*second*time.Duration(scale), took)
					return
				}
				var failed *Failure
				require.ErrorAs(t, err, &failed)
				require.Equal(t, job.CustomFailed, failed.FailureReason())
				require.Equal(t, map[int]time.Duration{1: 6 * second, 2: 10 * second}[attempt]*time.Duration(scale), took)
			})
		}
	}
}

func TestCustomResult(t *testing.T) {
	t.Parallel()
	run := func(r job.PlannedResult, seed int64) *job.Result {
		d := defineCustom(job.Behavior{Result: r, Seed: &seed})
		result := must(New(Config{}).Run(t.Context(), d, 1, job.Observer{}))(t)
		require.Len(t, result.Body, d.PayloadSize)
		return result
	}
	body := run(job.PlannedResult{Body: ref("a <ü>\n"), MediaType: "text/plain; charset=utf-8"}, 1)
	require.Equal(t, "a <ü>\n", string(body.Body))
	require.Equal(t, "text/plain; charset=utf-8", body.MediaType)
	require.Empty(t, run(job.PlannedResult{Body: ref("")}, 1).Body)
	for size := 1; size < 200; size++ {
		result := run(job.PlannedResult{Size: &size}, 1)
		require.True(t, json.Valid(result.Body), "%q", result.Body)
		require.Equal(t, MediaTypeJSON, result.MediaType)
		require.Regexp(t, "^[a-p]+$", string(run(job.PlannedResult{Size: &size, MediaType: "text/plain"}, 1).Body))
	}
	most := job.MaxResultBytes
	large := job.PlannedResult{Size: &most, MediaType: "application/octet-stream"}
	require.Equal(t, run(large, 1), run(large, 1))
	require.NotEqual(t, run(large, 1), run(large, 2))
}

func TestCustomUsesRequestedResources(t *testing.T) {
	t.Parallel()
	r := New(Config{TimeScale: 0.1, TempDir: t.TempDir(), MaxMemory: 4 << 20})
	var held []int
	behavior := job.Behavior{Duration: second, CPU: 1, MemoryBytes: 2<<20 + 1, IOBytes: 9 << 20, Steps: 2}
	start := time.Now()
	_, err := r.Run(t.Context(), defineCustom(behavior), 1, job.Observer{Progress: func(job.Progress) { held = append(held, len(r.memory)) }})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), 99*time.Millisecond)
	require.Equal(t, []int{0, 3, 3}, held, "MiB")
	require.Empty(t, r.memory)
	require.Empty(t, r.turns)

	behavior.MemoryBytes = 64 << 20
	_, err = r.Run(t.Context(), defineCustom(behavior), 1, job.Observer{})
	require.NoError(t, err, "a run continues with less memory")
	_, err = New(Config{TempDir: "/nonexistent"}).Run(t.Context(), defineCustom(job.Behavior{IOBytes: 1}), 1, job.Observer{})
	require.ErrorIs(t, err, job.ErrExhausted)
	require.ErrorIs(t, New(Config{TempDir: "/nonexistent", Limit: second}).Probe(t.Context(), job.Custom), job.ErrExhausted)
	lost := errors.New("lost")
	_, err = New(Config{}).Run(t.Context(), defineCustom(job.Behavior{Emit: []job.PlannedEvent{{}}}), 1,
		job.Observer{Emit: func(int, job.Emission) error { return lost }})
	require.Equal(t, lost, err, "the run ends if an event cannot be recorded")
}

func TestCustomWritesAllItsBlocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, steps := range []int{1, 3, 100} {
		d := defineCustom(job.Behavior{IOBytes: 10*blockSize - 1, Steps: steps})
		a := New(Config{TempDir: dir}).newAttempt(d, 1, job.Observer{})
		require.NoError(t, a.run(t.Context()))
		info := must(a.file.file.Stat())(t)
		require.EqualValues(t, 10*blockSize, info.Size())
		a.release()
	}
	requireEmptyDir(t, dir)
}

func TestCustomStopsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, second, 5 * second, 9 * second} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(errStopped) })
			start := time.Now()
			_, err := New(Config{TimeScale: 1}).Run(ctx, defineCustom(job.Behavior{Duration: 10 * second,
				Emit: []job.PlannedEvent{{After: 10 * second}}}), 1, job.Observer{Emit: func(int, job.Emission) error {
				t.Error("the run was stopped before the event")
				return nil
			}})
			require.Equal(t, errStopped, err)
			require.Equal(t, after, time.Since(start))
		}
	})
}
