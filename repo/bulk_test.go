package repo_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func (f *fixture) bulk(action job.BulkAction, filter job.BulkFilter, opts ...func(*job.Bulk)) *job.Bulk {
	return must(f.tryBulk(action, filter, opts...))(f.t)
}

func (f *fixture) tryBulk(action job.BulkAction, filter job.BulkFilter, opts ...func(*job.Bulk)) (*job.Bulk, error) {
	b := job.Bulk{ID: newID(), Owner: job.BulkOwner{ClientID: f.client}, Action: action, Filter: filter, Rate: 200, RequestID: "r-bulk"}
	for _, opt := range opts {
		opt(&b)
	}
	return f.store.InsertBulk(f.ctx(), b)
}

func ofAnother(b *job.Bulk) { b.Owner.ClientID = newID() }

var everything = job.BulkFilter{All: true}

func ofOperator(b *job.Bulk) { b.Owner = job.BulkOwner{Operator: "anna"} }

func (f *fixture) gather(b *job.Bulk, look, most int) *job.Bulk {
	for b.GatheredAt == nil {
		next, ok := must2(f.store.GatherBulk(f.ctx(), b, look, most))(f.t)
		require.True(f.t, ok)
		b = next
	}
	return b
}

func (f *fixture) gathered(action job.BulkAction, filter job.BulkFilter, opts ...func(*job.Bulk)) *job.Bulk {
	return f.gather(f.bulk(action, filter, opts...), 100, 100)
}

func (f *fixture) doItems(b *job.Bulk, do func(context.Context, []job.BulkItem) ([]job.BulkItem, error)) []job.BulkItem {
	return must(f.store.DoItems(f.ctx(), b.ID, job.ID{}, 10, do))(f.t)
}

func (f *fixture) items(b *job.Bulk, q job.BulkQuery) []job.BulkItem {
	q.Limit = 100
	items, next := must2(f.store.BulkItems(f.ctx(), b.Owner.ClientID, b.ID, q))(f.t)
	require.Zero(f.t, next)
	return items
}

func jobOf(i job.BulkItem) job.ID { return i.JobID }

func TestBulkCollectsMatchingJobs(t *testing.T) {
	f := setup(t)
	correlated := f.submit(func(s *job.Submission) { s.Job.CorrelationID = "run-7" })
	queued := f.submit()
	failed := f.at(job.Failed)
	other := f.submit(ofClient(newID()))
	before, all := f.job(queued).CreatedAt, []job.ID{correlated, queued, failed}
	operators := []func(*job.Bulk){ofOperator}
	for name, test := range map[string]struct {
		filter job.BulkFilter
		opts   []func(*job.Bulk)
		want   []job.ID
	}{
		"all":            {everything, nil, all},
		"state":          {job.BulkFilter{State: job.Queued}, nil, []job.ID{correlated, queued}},
		"failure code":   {job.BulkFilter{FailureCode: f.job(failed).Failure.Code}, nil, []job.ID{failed}},
		"failure detail": {job.BulkFilter{FailureDetail: f.job(failed).Failure.Detail}, nil, []job.ID{failed}},
		"other detail":   {job.BulkFilter{FailureDetail: "Something else."}, nil, nil},
		"correlation":    {job.BulkFilter{CorrelationID: "run-7"}, nil, []job.ID{correlated}},
		"after":          {job.BulkFilter{CreatedAfter: job.TimeOf(&before)}, nil, []job.ID{queued, failed}},
		"before":         {job.BulkFilter{CreatedBefore: job.TimeOf(&before)}, nil, []job.ID{correlated}},
		"kind":           {job.BulkFilter{WorkKind: job.FailImmediate}, nil, nil},
		"type":           {job.BulkFilter{Type: job.Execute}, nil, all},
		"batch":          {job.BulkFilter{BatchID: newID()}, nil, nil},
		"all clients":    {everything, operators, append([]job.ID{other}, all...)},
		"a given client": {job.BulkFilter{ClientID: f.client}, operators, all},
	} {
		b := f.gather(f.bulk(job.BulkCancel, test.filter, test.opts...), 2, 100)
		items := f.items(b, job.BulkQuery{Result: job.ItemPending})
		require.ElementsMatch(t, test.want, each(items, jobOf), name)
		require.Equal(t, len(test.want), b.Total, name)
		require.False(t, b.More)

		look := must(f.store.CountBulk(f.ctx(), b.JobsOf(), test.filter, job.ID{}, 100))(t)
		require.ElementsMatch(t, test.want, look.First, name)
		matched := 0
		for _, a := range look.Alike {
			matched += a.Count
		}
		require.Equal(t, len(test.want), matched, name)
		f.finishAll(b)
	}
}

func (f *fixture) finishAll(b *job.Bulk) { must2(f.store.AbortBulk(f.ctx(), job.ID{}, b.ID))(f.t) }

func TestBulkTakesTheNewestEarlierJobs(t *testing.T) {
	f := setup(t)
	ids := f.submitted(3)
	b := f.bulk(job.BulkCancel, everything)
	b.CreatedAt = f.job(ids[2]).CreatedAt // created_at of a job is an estimate, which may be slightly before Postgres' time
	f.exec(`UPDATE bulk_operations SET created_at = $1 WHERE bulk_id = $2`, b.CreatedAt, b.ID.String())
	f.submit()
	first, ok := must2(f.store.GatherBulk(f.ctx(), b, 2, 2))(t)
	require.True(t, ok)
	require.Equal(t, job.BulkRunning, first.State())
	_, ok = must2(f.store.GatherBulk(f.ctx(), b, 2, 2))(t)
	require.False(t, ok, "a former leader cannot repeat the step")
	b = f.gather(first, 2, 2)
	require.True(t, b.More)
	require.Equal(t, 2, b.Total)
	require.Equal(t, ids[1:], each(f.items(b, job.BulkQuery{}), jobOf))
}

func TestBulkLimits(t *testing.T) {
	f := setup(t)
	var first *job.Bulk
	for range job.MaxOpenBulksClient {
		first = f.bulk(job.BulkCancel, everything)
	}
	require.Equal(t, job.CodeConflict, codeOf(f.tryBulk(job.BulkCancel, everything)))
	for n := job.MaxOpenBulksClient; n < job.MaxOpenBulks-job.MaxOpenBulksOperator; n++ {
		f.bulk(job.BulkCancel, everything, ofAnother)
	}
	require.Equal(t, job.CodeRateLimited, codeOf(f.tryBulk(job.BulkCancel, everything, ofAnother)))
	f.bulk(job.BulkCancel, everything, ofOperator)

	f.finishAll(first)
	f.bulk(job.BulkCancel, everything)
	require.Len(t, must(f.store.OpenBulks(f.ctx()))(t), job.MaxOpenBulks-job.MaxOpenBulksOperator+1)
}

func (f *fixture) retryAll(override bool) func(context.Context, []job.BulkItem) ([]job.BulkItem, error) {
	return func(ctx context.Context, items []job.BulkItem) (ended []job.BulkItem, err error) {
		var retries []job.ItemRetry
		for _, i := range items {
			retries = append(retries, job.ItemRetry{Item: i})
		}
		changes, err := f.store.RetryItems(ctx, retries, override)
		for n, c := range changes {
			result := job.ItemSkipped
			if c.Changed {
				result = job.ItemSucceeded
			}
			ended = append(ended, items[n].End(result, "", "said"))
		}
		return ended, err
	}
}

// The change of a job and the result of its item are committed together.
func TestBulkItemsHaveTheirEffectOnce(t *testing.T) {
	f := setup(t)
	id := f.at(job.Failed)
	b := f.gathered(job.BulkRetry, job.BulkFilter{State: job.Failed})
	before := f.all(id)

	err := errOf(f.store.DoItems(f.ctx(), b.ID, job.ID{}, 10, func(ctx context.Context, items []job.BulkItem) ([]job.BulkItem, error) {
		require.Equal(t, job.ItemSucceeded, must(f.retryAll(false)(ctx, items))(t)[0].Result)
		return nil, errors.New("the leader died")
	}))
	require.Error(t, err)
	require.Equal(t, before, f.all(id), "a change without its result is undone")

	require.Len(t, f.doItems(b, f.retryAll(false)), 1)
	require.Equal(t, job.Queued, f.state(id))
	require.Empty(t, f.doItems(b, f.retryAll(false)), "the item has a result")
	require.Equal(t, 2, f.job(id).Attempt)

	done, ok := must2(f.store.FinishBulk(f.ctx(), b.ID))(t)
	require.True(t, ok)
	require.Equal(t, job.BulkDone, done.State())
	require.Equal(t, []int{1, 1, 1, 0, 0}, []int{done.Total, done.Done, done.Succeeded, done.Skipped, done.Failed})
	_, ok = must2(f.store.FinishBulk(f.ctx(), b.ID))(t)
	require.False(t, ok)
	items := f.items(b, job.BulkQuery{Result: job.ItemSucceeded})
	require.Len(t, items, 1)
	require.Equal(t, "said", items[0].Detail)
	require.NotNil(t, items[0].At)
	require.Empty(t, f.items(b, job.BulkQuery{Result: job.ItemFailed}))
	require.Equal(t, job.CodeConflict, codeOf(f.store.AbortBulk(f.ctx(), f.client, b.ID)))
	f.checkInvariants()

	// If a gathered job was retried meanwhile, the operation skips it.
	id = f.at(job.Failed)
	b = f.gathered(job.BulkRetry, job.BulkFilter{State: job.Failed})
	f.retry(id, 1)
	f.finish(failure(f.claim(id, 2), job.FailedOnce))
	f.doItems(b, f.retryAll(false))
	require.Equal(t, 2, f.job(id).Attempt)
	require.Len(t, f.items(b, job.BulkQuery{Result: job.ItemSkipped}), 1)
}

func TestBulkReportsReasons(t *testing.T) {
	f := setup(t)
	f.submit()
	f.failed(job.FailedOnce, attempts(1))
	ids := []job.ID{f.failed(job.FailedImmediately), f.failed(job.FailedImmediately)}
	look := must(f.store.CountBulk(f.ctx(), f.client, everything, job.ID{}, 100))(t)
	hopeless := f.job(ids[0])
	require.ElementsMatch(t, []job.BulkAlike{
		{State: job.Queued, Attempt: 1, MaxAttempts: hopeless.MaxAttempts, Count: 1},
		{State: job.Failed, Attempt: 1, MaxAttempts: 1, Retryable: true, Count: 1},
		{State: job.Failed, Attempt: 1, MaxAttempts: hopeless.MaxAttempts, Count: 2},
	}, look.Alike)

	b := f.gathered(job.BulkRetry, everything)
	f.doItems(b, func(_ context.Context, items []job.BulkItem) ([]job.BulkItem, error) {
		for n, i := range items {
			items[n] = i.End(job.ItemSkipped, "", "Not final.")
			if i.Job.State == job.Failed {
				items[n] = i.Fail(job.Errorf(job.CodeConflict, "Not retryable."))
			}
		}
		return items, nil
	})
	require.Equal(t, []job.BulkReason{
		{Result: job.ItemFailed, Code: new(job.CodeConflict), Detail: "Not retryable.", Count: 3},
		{Result: job.ItemSkipped, Detail: "Not final.", Count: 1},
	}, must(f.store.Admin().BulkLeft(f.ctx(), b.ID))(t))
}

func TestBulkOverride(t *testing.T) {
	f := setup(t)
	exhausted, hopeless := f.failed(job.FailedOnce, attempts(1)), f.failed(job.FailedImmediately)
	f.doItems(f.gathered(job.BulkRetry, job.BulkFilter{State: job.Failed}), f.retryAll(false))
	require.Equal(t, []job.State{job.Failed, job.Failed}, []job.State{f.state(exhausted), f.state(hopeless)})
	f.doItems(f.gathered(job.BulkRetry, job.BulkFilter{State: job.Failed}, ofOperator), f.retryAll(true))
	require.Equal(t, []job.State{job.Queued, job.Queued}, []job.State{f.state(exhausted), f.state(hopeless)})
	require.Equal(t, []int{2, 4}, []int{f.job(exhausted).MaxAttempts, f.job(hopeless).MaxAttempts})
	f.finish(success(f.claim(exhausted, 2)))
	f.checkInvariants()
}

func TestBulkCancelsAndDeletes(t *testing.T) {
	f := setup(t)
	queued, ended := f.submit(), f.at(job.Succeeded)
	b := f.gathered(job.BulkCancel, everything)
	f.doItems(b, func(ctx context.Context, items []job.BulkItem) ([]job.BulkItem, error) {
		require.Len(t, items, 2)
		require.NotNil(t, items[0].Job)
		canceled, err := f.store.CancelItems(ctx, items)
		require.Len(t, canceled, 1)
		return []job.BulkItem{items[0].End(job.ItemSucceeded, "", "")}, err
	})
	require.Equal(t, job.Canceled, f.state(queued))
	_, ok := must2(f.store.FinishBulk(f.ctx(), b.ID))(t)
	require.False(t, ok, "one item has no result")

	b = f.gathered(job.BulkDelete, everything)
	f.exec(`UPDATE bulk_items SET event_seq = event_seq - 1 WHERE bulk_id = $1 AND job_id = $2`, b.ID.String(), ended.String())
	f.doItems(b, func(ctx context.Context, items []job.BulkItem) ([]job.BulkItem, error) {
		deleted, err := f.store.DeleteItems(ctx, items)
		require.Equal(t, []job.ID{queued}, deleted, "a changed job stays")
		return nil, err
	})
	require.Equal(t, job.CodeJobGone, codeOf(f.store.Job(f.ctx(), f.client, queued)))
	require.Equal(t, job.Succeeded, f.state(ended))
	f.checkInvariants()
}

func TestBulkAborts(t *testing.T) {
	f := setup(t)
	f.at(job.Failed)
	b := f.gathered(job.BulkRetry, job.BulkFilter{State: job.Failed})
	require.Equal(t, job.CodeBulkNotFound, codeOf(f.store.AbortBulk(f.ctx(), newID(), b.ID)), "another client's operation")
	aborted, changed := must2(f.store.AbortBulk(f.ctx(), f.client, b.ID))(t)
	require.True(t, changed)
	require.Equal(t, job.BulkAborted, aborted.State())
	again, changed := must2(f.store.AbortBulk(f.ctx(), f.client, b.ID))(t)
	require.False(t, changed)
	require.Equal(t, aborted, again)
	require.Empty(t, f.doItems(b, f.retryAll(false)))
	_, ok := must2(f.store.GatherBulk(f.ctx(), b, 10, 10))(t)
	require.False(t, ok)
}

func TestBulkListsAndRetention(t *testing.T) {
	f := setup(t)
	f.submit()
	first, second := f.bulk(job.BulkCancel, everything), f.bulk(job.BulkCancel, job.BulkFilter{State: job.Queued})
	foreign := f.bulk(job.BulkCancel, everything, ofOperator)
	listed, _ := walk(f, func(after job.ID) ([]*job.Bulk, job.ID) {
		return must2(f.store.Bulks(f.ctx(), f.client, job.BulkQuery{Limit: 1, After: after}))(t)
	})
	require.Equal(t, []*job.Bulk{second, first}, listed)
	listed, _ = must2(f.store.Bulks(f.ctx(), job.ID{}, job.BulkQuery{Limit: 10}))(t)
	require.Equal(t, []*job.Bulk{foreign, second, first}, listed)

	for _, b := range []*job.Bulk{first, second} {
		f.gather(b, 100, 100)
		f.finishAll(b)
	}
	f.exec(`UPDATE bulk_operations SET finished_at = now() - interval '8 days' WHERE bulk_id = $1`, first.ID.String())
	for range 2 {
		must(f.store.Clean(f.ctx(), 100))(t)
	}
	require.Equal(t, 2, f.count("bulk_operations"))
	require.Equal(t, second.ID.String(), one[string](f, `SELECT string_agg(DISTINCT bulk_id::text, ' ') FROM bulk_items`))
}
