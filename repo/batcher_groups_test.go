package repo_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// insertAll submits jobs at once and gives the errors in their order.
func (f *fixture) insertAll(ctx context.Context, subs []job.Submission) (wait func() []error) {
	errs := make([]error, len(subs))
	var calls sync.WaitGroup
	for i, sub := range subs {
		calls.Go(func() { _, errs[i] = f.store.InsertJob(ctx, sub) })
	}
	return func() []error {
		calls.Wait()
		return errs
	}
}

func (f *fixture) submissions(n int, opts ...func(*job.Submission)) []job.Submission {
	subs := make([]job.Submission, n)
	for i := range subs {
		subs[i] = f.submission(opts...)
	}
	return subs
}

func TestConcurrentInsertsShareStatements(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	items := 0
	for name, test := range map[string]struct {
		jobs, statements int
		opts             []func(*job.Submission)
	}{
		"a flush":           {100, 1, nil},
		"more than a flush": {2*repo.MaxFlushItems + 1, 3, nil},
		"bounded by bytes": {10, 3, []func(*job.Submission){func(s *job.Submission) { // 4 to a flush
			s.Job.Params = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
		}}},
		"bounded by bytes of events": {10, 3, []func(*job.Submission){func(s *job.Submission) {
			s.Job.Definition.Emit = &job.Emission{Name: "big", Data: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}
		}}},
	} {
		before := f.awaitFlushed("insert", items)
		release := f.occupyInserts()
		wait := f.insertAll(f.ctx(), f.submissions(test.jobs, test.opts...))
		f.awaitQueued("insert", test.jobs)
		release()
		require.NoError(t, errors.Join(wait()...), name)
		items += test.jobs + repo.Flushers
		require.Equal(t, test.statements+repo.Flushers, f.awaitFlushed("insert", items)-before, name)
	}
}

func TestSubmittersWhoLeave(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	unlock := f.lock(`LOCK TABLE jobs IN SHARE MODE`)
	ctx, leave := context.WithCancel(t.Context())
	var taken []job.Submission
	var waits []func() []error
	for i := range repo.Flushers {
		subs := f.submissions(1)
		taken = append(taken, subs...)
		waits = append(waits, f.insertAll(ctx, subs))
		f.awaitBlocked(i + 1)
	}
	queued := f.submissions(5)
	waitQueued := f.insertAll(ctx, queued)
	f.awaitQueued("insert", 5)
	leave()

	for _, err := range waitQueued() {
		require.Equal(t, job.CodeDBError, job.CodeOf(err))
	}
	for _, wait := range waits {
		err := wait()[0]
		require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err))
		require.ErrorContains(t, err, "unknown")
	}
	unlock()
	for _, sub := range taken { // what was on its way is committed although nobody waits
		f.await(`SELECT EXISTS (SELECT FROM jobs WHERE job_id = $1)`, sub.Job.ID.String())
	}
	f.submit()
	require.Equal(t, len(taken)+1, f.countJobs(), "who left the queue wrote nothing")
}

func TestCloseFlushesWhatWaits(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	release := f.occupyInserts()
	subs := f.submissions(50)
	wait := f.insertAll(f.ctx(), subs)
	f.awaitQueued("insert", len(subs))
	closed := make(chan struct{})
	go func() { f.store.Close(); close(closed) }()
	require.Eventually(t, func() bool { // it takes no more
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := f.store.InsertJob(ctx, f.submission())
		return err != nil && strings.Contains(err.Error(), "shutting down")
	}, patience, tick)
	release()
	require.NoError(t, errors.Join(wait()...))
	<-closed
	require.Equal(t, len(subs)+repo.Flushers, f.countJobs())

	f.store.Close()
	_, err := f.store.InsertJob(f.ctx(), f.submission())
	require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err))
	_, err = f.store.Job(f.ctx(), f.client, subs[0].Job.ID)
	require.Error(t, err)
}
