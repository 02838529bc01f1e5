package testbed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

const (
	fixtureWait  = 8 * time.Second
	fixtureDelay = 24 * time.Hour
	fixtureSteps = 100
	fixtureRuns  = 10 * time.Minute // duration of jobs that must be RUNNING, but at most 9/10 of the execution limit
)

// MakeFixtures creates jobs, and waits until workers have brought them into the wanted states. To wait longer, a client repeats the
// request with the same idempotency key.
func (b *Bed) MakeFixtures(ctx context.Context, r job.Request, wanted []testbed.Fixture) ([]testbed.Made, error) {
	wait := cmp.Or(b.Wait, fixtureWait)
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	made, err := b.make(limited, r, wanted)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, job.Errorf(job.CodeWorkerUnavailable, "The jobs were not in the requested states within %s. "+
			"Repeat the request with the same Idempotency-Key to continue.", wait)
	}
	return made, err
}

func (b *Bed) make(ctx context.Context, r job.Request, wanted []testbed.Fixture) ([]testbed.Made, error) {
	made := make([]testbed.Made, len(wanted))
	for i := range wanted {
		receipt, err := b.Jobs.Submit(ctx, b.request(r, &wanted[i], i))
		if err != nil {
			return nil, err
		}
		made[i] = testbed.Made{JobID: receipt.JobID, Fixture: wanted[i].State, State: receipt.State}
	}
	for i := range made {
		if err := b.drive(ctx, r.ClientID, &made[i], wanted[i].Progress); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (b *Bed) request(r job.Request, wanted *testbed.Fixture, n int) job.Request {
	does := &job.Behavior{Result: wanted.Result}
	params := map[string]any{}
	if wanted.ResultText != nil {
		params["result"] = wanted.ResultText
	}
	switch {
	case wanted.State == testbed.FixtureRunning:
		does.Duration, does.Steps, does.BeginAt = min(fixtureRuns, b.Limit*9/10), fixtureSteps, float64(wanted.Progress)/fixtureSteps
		params["duration"], params["steps"], params["begin_at"] = does.Duration.String(), does.Steps, does.BeginAt
	case wanted.State.Fails():
		attempts := make([]int, job.MaxPlannedAttempt)
		for i := range attempts {
			attempts[i] = i + 1
		}
		does.Failures = []job.PlannedFailure{{Attempts: attempts, Problem: wanted.Problem}}
		planned := map[string]any{"attempts": attempts}
		if wanted.ProblemText != nil {
			planned["problem"] = wanted.ProblemText
		}
		params["failures"] = []any{planned}
	}
	r.Type, r.WorkKind, r.Behavior = job.Execute, job.Custom, does
	if wanted.State == testbed.FixtureScheduled || wanted.State == testbed.FixtureCanceled {
		at := b.Now().Add(fixtureDelay)
		r.Type, r.ExecutionAt = job.Deferred, &at
	}
	if wanted.CorrelationID != "" {
		r.CorrelationID = wanted.CorrelationID
	}
	r.Params, _ = json.Marshal(map[string]any{"behavior": params}) // cannot fail: the values come from JSON
	r.Hash = sha256.Sum256(fmt.Appendf(nil, "%s %q %s", wanted.State, r.CorrelationID, r.Params))
	if r.IdempotencyKey != "" {
		sum := sha256.Sum256([]byte(r.IdempotencyKey + "/" + strconv.Itoa(n)))
		r.IdempotencyKey = "fixture-" + hex.EncodeToString(sum[:])
	}
	return r
}

func (b *Bed) drive(ctx context.Context, client job.ID, m *testbed.Made, progress int) error {
	var err error
	switch {
	case m.Fixture == testbed.FixtureScheduled:
	case m.Fixture == testbed.FixtureCanceled:
		_, err = b.Jobs.Cancel(ctx, client, m.JobID)
		m.State = job.Canceled
	case m.Fixture == testbed.FixtureRunning:
		_, err = b.await(ctx, client, m, func(j *job.Job) bool {
			return j.State.Final() || j.State == job.Running && (progress == 0 || j.Progress != nil && j.Progress.Percentage >= progress)
		})
	case m.Fixture == testbed.FixtureExhausted:
		err = b.exhaust(ctx, client, m)
	default:
		_, err = b.await(ctx, client, m, func(j *job.Job) bool { return j.State.Final() })
		if err == nil && m.Fixture == testbed.FixtureGone {
			err = b.Jobs.Delete(ctx, client, m.JobID)
		}
		if err == nil && m.Fixture == testbed.FixtureExpired {
			err = b.ExpireResult(ctx, client, m.JobID)
		}
	}
	if m.Fixture == testbed.FixtureGone && job.CodeOf(err) == job.CodeJobGone {
		m.State, err = job.Succeeded, nil
	}
	return err
}

func (b *Bed) exhaust(ctx context.Context, client job.ID, m *testbed.Made) error {
	for tried := 0; ; {
		j, err := b.await(ctx, client, m, func(j *job.Job) bool { return j.State.Final() && j.Attempt > tried })
		if err != nil || j.Attempt >= j.MaxAttempts {
			return err
		}
		tried = j.Attempt
		if _, err := b.Jobs.RetryNow(ctx, client, m.JobID); err != nil {
			return err
		}
	}
}

func (b *Bed) await(ctx context.Context, client job.ID, m *testbed.Made, done func(*job.Job) bool) (*job.Job, error) {
	j, err := b.Jobs.Await(ctx, client, m.JobID, done)
	switch {
	case err != nil:
		return nil, err
	case !done(j):
		return nil, job.Errorf(job.CodeWorkerUnavailable, "No worker has brought job %s into the requested state yet: it is %s. Is "+
			"a worker running? "+
			"Repeat the request with the same Idempotency-Key to continue.", m.JobID, j.State)
	}
	m.State = j.State
	return j, nil
}
