package handlers

import (
	"cmp"
	"context"
	"encoding/json"
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
	w.bulk.count = job.BulkCount{Count: 12, Changes: 8, More: true, Sample: []*job.Job{j},
		Left: []job.BulkReason{{Result: job.ItemFailed, Detail: "It cannot.", Count: 4}}}
	a := w.send("POST", "/v1/bulk", `{"action":"delete","filter":{"state":"SUCCEEDED"},"dry_run":true}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusOK, a.StatusCode, a.text)
	require.Regexp(t, `^{"count":12,"changes":8,"left":\[{"result":"FAILED","code":null,"detail":"It cannot.","count":4}\],`+
		`"more":true,"sample":\[{"job_id":"`+jobID.String(), a.text)
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
		},
		job.CodeValidationFailed: {
			of(`{}`): "/filter", of(`{"all":false}`): "/filter", of(`{"state":null}`): "/filter", of(`{"all":true,"state":"FAILED"}`): "/filter/all",
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

var errNoSchedule = job.Errorf(job.CodeScheduleMissing, "There is no such schedule.")

// fakeSchedules has the schedule that find gives; nil: none.
type fakeSchedules struct {
	*lookups
	find    finder[*job.Schedule]
	created []job.ScheduleRequest
	changed []job.SchedulePatch
	query   job.ScheduleQuery
	paused  []bool
}

func (f *fakeSchedules) Create(_ context.Context, r job.ScheduleRequest) (*job.Schedule, error) {
	f.created = append(f.created, r)
	if len(r.Violations) > 0 {
		return nil, r.Refusal(r.Violations)
	}
	s := r.Schedule
	sometimes(&s)
	s.ID, s.CreatedAt, s.UpdatedAt, s.DueAt, s.Job = scheduleID, now, now, at(60), job.ScheduledJobOf(r.Job)
	return &s, nil
}

func (f *fakeSchedules) Schedule(ctx context.Context, client, id job.ID) (*job.Schedule, error) {
	return f.find.of(ctx, f.lookups, client, id, scheduleID, errNoSchedule)
}

func (f *fakeSchedules) Schedules(ctx context.Context, client job.ID, q job.ScheduleQuery) ([]*job.Schedule, job.ID, error) {
	f.query = q
	s, err := f.Schedule(ctx, client, scheduleID)
	if err != nil {
		return nil, job.ID{}, nil
	}
	return []*job.Schedule{s}, s.ID, nil
}

func (f *fakeSchedules) Change(ctx context.Context, client, id job.ID, p job.SchedulePatch) (*job.Schedule, error) {
	f.changed = append(f.changed, p)
	if len(p.Violations) > 0 {
		return nil, job.ScheduleRequest{Malformed: p.Malformed}.Refusal(p.Violations)
	}
	s, err := f.Schedule(ctx, client, id)
	if err == nil {
		p.Apply(s)
		sometimes(s)
	}
	return s, err
}

// sometimes makes a schedule due: use cases refuse one that never is.
func sometimes(s *job.Schedule) {
	if s.Interval == 0 {
		s.Cron = cmp.Or(s.Cron, "0 4 * * *")
	}
}

func (f *fakeSchedules) Delete(ctx context.Context, client, id job.ID) error {
	_, err := f.Schedule(ctx, client, id)
	return err
}

func (f *fakeSchedules) SetPaused(ctx context.Context, client, id job.ID, paused bool) (*job.Schedule, error) {
	f.paused = append(f.paused, paused)
	return f.Schedule(ctx, client, id)
}

func (f *fakeSchedules) Trigger(ctx context.Context, client, id job.ID, _ time.Time, _ string) (*job.Job, error) {
	_, err := f.Schedule(ctx, client, id)
	return &job.Job{ID: jobID}, err
}

// aSchedule is one that has missed a due time.
func aSchedule(_ context.Context, _, id job.ID) (*job.Schedule, error) {
	due, last := time.Date(2030, 2, 1, 3, 30, 0, 0, time.UTC), now
	return &job.Schedule{
		ID: id, Name: "nightly", Timetable: job.Timetable{Cron: "30 4 * * *", TimeZone: "Europe/Berlin", Jitter: 90 * time.Second},
		Overlap: job.OverlapSkip, CatchUp: job.CatchUpAll, CatchUpMax: 7,
		Job:       job.ScheduledJob{Type: job.Execute, WorkKind: job.SuccessFast, Params: json.RawMessage(`{"a": 1}`)},
		CreatedAt: now, UpdatedAt: now,
		ScheduleProgress: job.ScheduleProgress{DueAt: &due, Runs: 3, Missed: 2, Skipped: 1, LastDueAt: &last, LastJobID: jobID,
			LastError: &job.ScheduleError{DueAt: job.Time(now), Code: job.CodeQueueFull, Detail: "Full."}},
	}, nil
}

func TestScheduleIsCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("POST", "/v1/schedules", `{"name":"x","interval":"90s","jitter":"1s","start_at":"2030-02-01T00:00:00Z","overlap":"queue_one",
		"catch_up":"all","catch_up_max":1000,"paused":false,"job":{"type":"EMIT_EVENT","event":{"name":"tick","data":[1]},"params":{"a":1},
		"correlation_id":"c","auto_retry":true,"callback":"https://example.com/x"}}`, "Accept-Language", "de")
	require.Equal(t, 201, a.StatusCode, a.text)
	require.Equal(t, "/v1/schedules/"+scheduleID.String(), a.Header.Get("Location"))
	r := w.schedules.created[0]
	require.Equal(t, []any{clientA, 90 * time.Second, time.Second, job.OverlapQueueOne, job.CatchUpAll, 1000, job.EmitEvent, "tick", "c",
		true},
		[]any{r.Schedule.ClientID, r.Schedule.Interval, r.Schedule.Jitter, r.Schedule.Overlap, r.Schedule.CatchUp, r.Schedule.CatchUpMax,
			r.Job.Type, r.Job.Emit.Name, r.Job.CorrelationID, r.Job.AutoRetry})
	require.Equal(t, clientA, r.Job.ClientID)
	require.NotEmpty(t, r.Schedule.Language)
	require.Contains(t, a.text, `"warnings":[{"pointer":"/job/params/a"`)
	require.Contains(t, a.text, `"next_runs":["2030-01-31T12:01:00.123456Z","2030-02-01T00:00:00.000000Z"`)
	require.Contains(t, w.log.String(), `"schedule_id":"`+scheduleID.String()+`"`)

	w.send("POST", "/v1/schedules", `{"cron":"* * * * *","job":{"type":"EXECUTE"}}`)
	r = w.schedules.created[1]
	require.Equal(t, []any{job.OverlapAllow, job.CatchUpNone, job.DefaultCatchUp},
		[]any{r.Schedule.Overlap, r.Schedule.CatchUp, r.Schedule.CatchUpMax})
}

// What is wrong with a schedule is said where it is.
func TestBadSchedules(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	ofJob := func(job string) string { return `{"interval":"1m","job":` + job + `}` }
	of := func(members string) string { return `{` + members + `,"job":{"type":"EXECUTE"}}` }
	more := func(members string) string { return of(`"interval":"1m",` + members) }
	for body, pointer := range map[string]string{
		`{"interval":"1m"}`: "/job", ofJob(`{}`): "/job/type", ofJob(`{"type":"X"}`): "/job/type", ofJob(`[]`): "/job",
		ofJob(`{"type":"EXECUTE","x":1}`): "/job/x", ofJob(`{"type":"EXECUTE","work_kind":"X"}`): "/job/work_kind",
		ofJob(`{"type":"EXECUTE","callback":"x"}`):                        "/job/callback",
		ofJob(`{"type":"EXECUTE","execution_at":"2031-01-31T12:00:00Z"}`): "/job/execution_at",
		ofJob(`{"type":"EXECUTE","idempotency_key":"x"}`):                 "/job/idempotency_key",
		of(`"interval":"999ms"`):                                          "/interval", of(`"interval":"9999h"`): "/interval",
		of(`"interval":60`): "/interval", of(`"cron":"* * * *"`): "/cron", of(`"cron":"TZ=UTC * * * * *"`): "/cron",
		of(`"cron":"* * * * *","time_zone":"X"`): "/time_zone", more(`"jitter":"2h"`): "/jitter", more(`"overlap":"x"`): "/overlap",
		more(`"catch_up":"x"`): "/catch_up", more(`"catch_up_max":1001`): "/catch_up_max", more(`"start_at":"x"`): "/start_at",
	} {
		p := w.send("POST", "/v1/schedules", body).problem(t)
		require.Equal(t, 400, p.Status, body)
		require.Len(t, p.Violations, 1, body)
		require.Equal(t, pointer, p.Violations[0].Pointer, body)
	}
	for body, pointer := range map[string]string{
		`{}`: "", `{"paused":true}`: "/paused", `{"overlap":"x"}`: "/overlap", `{"job":{}}`: "/job/type",
	} {
		p := w.send("PATCH", "/v1/schedules/"+scheduleID.String(), body).problem(t)
		require.Equal(t, pointer, p.Violations[0].Pointer, body)
	}
}

func TestScheduleIsShownAndChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	path := "/v1/schedules/" + scheduleID.String()
	shown := `{"schedule_id":"` + scheduleID.String() + `","name":"nightly","state":"ACTIVE","cron":"30 4 * * *","time_zone":"Europe/Berlin",
		"interval":null,"jitter":"1m30s","start_at":null,"end_at":null,"overlap":"skip","catch_up":"all","catch_up_max":7,
		"job":{"type":"EXECUTE","work_kind":"SUCCESS_FAST","params":{"a": 1}},"paused":false,
		"created_at":"2030-01-31T12:00:00.123456Z","updated_at":"2030-01-31T12:00:00.123456Z",
		"next_runs":["2030-02-01T03:30:00.000000Z","2030-02-02T03:30:00.000000Z","2030-02-03T03:30:00.000000Z","2030-02-04T03:30:00.000000Z",
		"2030-02-05T03:30:00.000000Z"],"waiting_for":null,"last_run_at":"2030-01-31T12:00:00.123456Z","last_job_id":"` + jobID.String() + `",
		"runs":3,"missed":2,"skipped":1,
		"last_error":{"scheduled_for":"2030-01-31T12:00:00.123456Z","code":"RFA_EXEC_QUEUE_FULL","detail":"Full."},
		"links":{"self":"` + path + `","jobs":"/v1/jobs?schedule_id=` + scheduleID.String() + `","trigger":"` + path +
		`/trigger","pause":"` + path + `/pause"}}`
	for _, a := range []*answer{w.send("GET", path, ""), w.send("POST", path+"/pause", ""), w.send("POST", path+"/resume", "")} {
		require.JSONEq(t, shown, a.text)
	}
	require.Equal(t, []bool{true, false}, w.schedules.paused)
	a := w.send("PATCH", path, `{"cron":null,"time_zone":null,"interval":"1h","end_at":"2031-01-01T00:00:00Z"}`,
		"Content-Type", "application/merge-patch+json")
	require.Equal(t, 200, a.StatusCode, a.text)
	p := w.schedules.changed[0]
	require.True(t, p.Times)
	require.Equal(t, []any{"", "", time.Hour}, []any{*p.Cron, *p.TimeZone, *p.Interval})
	w.send("PATCH", path, `{"name":null}`)
	require.False(t, w.schedules.changed[1].Times)
	a = w.send("POST", path+"/trigger", "")
	require.Equal(t, 202, a.StatusCode)
	require.Equal(t, "/v1/jobs/"+jobID.String(), a.Header.Get("Location"))
	require.Equal(t, 204, w.send("DELETE", path, "").StatusCode)
	list := w.send("GET", "/v1/schedules?limit=7", "")
	require.Contains(t, list.text, scheduleID.String())
	require.Equal(t, job.ScheduleQuery{Limit: 7}, w.schedules.query)
}
