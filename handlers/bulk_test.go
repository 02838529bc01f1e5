package handlers

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// fakeBulk answers with what its functions say; nil ones say "not found", except for what
// begins or lists operations.
type fakeBulk struct {
	*lookups
	bulk  finder[*job.Bulk] // read, items and abort
	begun []job.BulkRequest
	query job.BulkQuery
	count job.BulkCount
	err   error // of what begins an operation
}

func (f *fakeBulk) Begin(_ context.Context, r job.BulkRequest) (*job.Bulk, error) {
	f.begun = append(f.begun, r)
	return &job.Bulk{ID: bulkID, CreatedAt: now}, f.err
}

func (f *fakeBulk) Count(_ context.Context, r job.BulkRequest) (job.BulkCount, error) {
	f.begun = append(f.begun, r)
	return f.count, f.err
}

func (f *fakeBulk) Bulk(ctx context.Context, owner job.BulkOwner, id job.ID) (*job.Bulk, error) {
	return f.bulk.of(ctx, f.lookups, owner.ClientID, id, bulkID, job.Errorf(job.CodeBulkNotFound, "There is no such bulk operation."))
}

func (f *fakeBulk) Bulks(ctx context.Context, owner job.BulkOwner, q job.BulkQuery) ([]*job.Bulk, job.ID, error) {
	f.query = q
	b, err := f.Bulk(ctx, owner, bulkID)
	if err != nil {
		return nil, job.ID{}, nil
	}
	return []*job.Bulk{b}, b.ID, nil
}

func (f *fakeBulk) Items(ctx context.Context, owner job.BulkOwner, id job.ID, q job.BulkQuery) ([]job.BulkItem, job.ID, error) {
	f.query = q
	if _, err := f.Bulk(ctx, owner, id); err != nil {
		return nil, job.ID{}, err
	}
	return []job.BulkItem{
		{JobID: jobID, Result: job.ItemFailed, Code: job.CodeConflict, Detail: "The job has used all of its 4 attempts.", At: at(0)},
		{JobID: jobID, Result: job.ItemPending},
	}, jobID, nil
}

func (f *fakeBulk) Abort(ctx context.Context, owner job.BulkOwner, id job.ID) (*job.Bulk, error) {
	return f.Bulk(ctx, owner, id)
}

// aBulk is an operation that is under way.
func aBulk(_ context.Context, _, id job.ID) (*job.Bulk, error) {
	return &job.Bulk{
		ID: id, Action: job.BulkRetry, Filter: job.BulkFilter{State: job.Failed, CreatedAfter: job.TimeOf(at(1))}, Rate: 200, CreatedAt: now,
		StartedAt: at(1), Total: 10, Done: 4, Succeeded: 2, Skipped: 1, Failed: 1,
	}, nil
}

func TestBulkBegins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("POST", "/v1/bulk", `{"action":"cancel","filter":{"state":"QUEUED","type":"EXECUTE","work_kind":"SUCCESS_FAST",
		"batch_id":"`+batchID.String()+`","correlation_id":"run-7","failure_code":"RFA_EXEC_TIMEOUT",
		"created_after":"2030-01-31T12:00:00Z","created_before":"2030-01-31T13:00:00Z"},"rate":7}`)
	require.Equal(t, http.StatusAccepted, a.StatusCode, a.text)
	require.JSONEq(t, `{"bulk_id":"`+bulkID.String()+`","state":"PENDING","created_at":"2030-01-31T12:00:00.123456Z"}`, a.text)
	require.Equal(t, "/v1/bulk/"+bulkID.String(), a.Header.Get("Location"))
	from := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	to := from.Add(time.Hour)
	require.Equal(t, []job.BulkRequest{{
		Owner: job.BulkOwner{ClientID: clientA}, Action: job.BulkCancel, Rate: 7, RequestID: a.Header.Get("X-Request-Id"),
		Filter: job.BulkFilter{
			State: job.Queued, Type: job.Execute, WorkKind: job.SuccessFast, BatchID: batchID, CorrelationID: "run-7",
			FailureCode: job.CodeTimeout, CreatedAfter: job.TimeOf(&from), CreatedBefore: job.TimeOf(&to),
		},
	}}, w.bulk.begun)

	a = w.send("POST", "/v1/bulk", `{"action":"retry","filter":{"all":true}}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusAccepted, a.StatusCode)
	require.Equal(t, job.DefaultBulkRate, w.bulk.begun[1].Rate)
	again := w.send("POST", "/v1/bulk", `{"filter":{"all":true}, "action":"retry"}`, "Idempotency-Key", "once")
	require.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
	require.Equal(t, a.text, again.text)
	require.Equal(t, a.Header.Get("Location"), again.Header.Get("Location"))
	require.Len(t, w.bulk.begun, 2)
	w.send("POST", "/v1/bulk", `{"action":"cancel","filter":{"all":true}}`, "Idempotency-Key", "once").
		requireProblem(t, job.CodeIdempotencyConflict)
}

func TestBulkDryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j, _ := finishedJob(t.Context(), clientA, jobID)
	w.bulk.count = job.BulkCount{Count: 12, More: true, Sample: []*job.Job{j}}
	a := w.send("POST", "/v1/bulk", `{"action":"delete","filter":{"state":"SUCCEEDED"},"dry_run":true}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusOK, a.StatusCode, a.text)
	require.Regexp(t, `^{"count":12,"more":true,"sample":\[{"job_id":"`+jobID.String(), a.text)
	require.True(t, w.bulk.begun[0].DryRun)
	require.Empty(t, w.once.known, "it has no effect to be repeated")
}

func TestBulkRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	of := func(filter string) string { return `{"action":"retry","filter":` + filter + `}` }
	all := func(members string) string { return `{"action":"retry","filter":{"all":true},` + members + `}` }
	for code, bodies := range map[job.Code]map[string]string{ // with the pointer of what is wrong
		job.CodeMalformed: {
			`{}`: "/action", `{"action":"retry"}`: "/filter", of(`[]`): "/filter",
			of(`null`): "/filter", of(`{"client_id":"x"}`): "/filter/client_id",
			of(`{"stat":"FAILED"}`): "/filter/stat", all(`"override":true`): "/override", all(`"rate":"many"`): "/rate",
			all(`"dry_run":"perhaps"`): "/dry_run",
		},
		job.CodeValidationFailed: {
			of(`{}`): "/filter", of(`{"all":false}`): "/filter", of(`{"state":null}`): "/filter", of(`{"all":true,"state":"FAILED"}`): "/filter/all",
			of(`{"state":"BROKEN"}`): "/filter/state", of(`{"failure_code":"RFA_NO"}`): "/filter/failure_code",
			of(`{"batch_id":"x"}`): "/filter/batch_id", of(`{"created_after":"now"}`): "/filter/created_after",
			`{"action":"burn","filter":{"all":true}}`: "/action", all(`"rate":0`): "/rate", all(`"rate":1001`): "/rate", all(`"rate":1.5`): "/rate",
		},
	} {
		for body, pointer := range bodies {
			p := w.send("POST", "/v1/bulk", body).requireProblem(t, code)
			require.Equal(t, pointer, p.Violations[0].Pointer, body)
		}
	}
	require.Empty(t, w.bulk.begun)
	w.bulk.err = &job.Error{Code: job.CodeRateLimited, RetryAfter: 10 * time.Second, Detail: "Too many."}
	a := w.send("POST", "/v1/bulk", of(`{"all":true}`))
	a.requireProblem(t, job.CodeRateLimited)
	require.Equal(t, "10", a.Header.Get("Retry-After"))
}

func TestBulkIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := job.BulkPath(bulkID)
	require.Contains(t, w.send("GET", "/v1/bulk", "").text, `"data":[]`)
	w.bulk.bulk = aBulk
	a := w.send("GET", path, "")
	shown := `{"bulk_id":"` + bulkID.String() + `","action":"retry","filter":{"state":"FAILED","created_after":"2030-01-31T12:00:01.123456Z"},
		"rate":200,"state":"RUNNING","total":10,"more":false,"done":4,"succeeded":2,"skipped":1,"failed":1,
		"created_at":"2030-01-31T12:00:00.123456Z","started_at":"2030-01-31T12:00:01.123456Z","finished_at":null,"operator":null,
		"links":{"self":"` + path + `","items":"` + path + `/items","abort":"` + path + `/abort"}}`
	require.JSONEq(t, shown, a.text)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	require.Contains(t, w.log.String(), `"bulk_id":"`+bulkID.String()+`"`)
	require.JSONEq(t, shown, w.send("POST", path+"/abort", "").text)

	list := w.send("GET", "/v1/bulk?limit=1", "")
	next := list.cursor(t)
	require.JSONEq(t, `{"data":[`+shown+`],"page":{"limit":1,"next_cursor":"`+next+`"}}`, list.text)
	w.send("GET", "/v1/bulk?cursor="+next, "")
	require.Equal(t, job.BulkQuery{After: bulkID, Limit: 50}, w.bulk.query)

	a = w.send("GET", path+"/items?result=FAILED&limit=2", "")
	require.Equal(t, job.BulkQuery{Limit: 2, Result: job.ItemFailed}, w.bulk.query)
	require.Contains(t, a.text, `{"job_id":"`+jobID.String()+`","result":"FAILED","code":"RFA_JOB_CONFLICT",`+
		`"detail":"The job has used all of its 4 attempts.","at":"2030-01-31T12:00:00.123456Z"}`)
	require.Contains(t, a.text, `"result":"PENDING","code":null,"detail":null,"at":null}`)
	w.send("GET", path+"/items?result=FAILED&cursor="+a.cursor(t), "")
	require.Equal(t, jobID, w.bulk.query.After)
}
