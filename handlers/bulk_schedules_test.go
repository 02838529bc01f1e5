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
	"github.com/forgerun/forgerun/verdict/fault"
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

func TestBulkLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := job.BulkPath(bulkID)
	require.Contains(t, w.send("GET", "/v1/bulk", "").text, `"data":[]`)
	w.bulk.bulk = aBulk
	w.send("GET", "/v1/bulk?cursor="+w.send("GET", "/v1/bulk?limit=1", "").cursor(t), "")
	require.Equal(t, job.BulkQuery{After: bulkID, Limit: 50}, w.bulk.query)
	a := w.send("GET", path+"/items?result=FAILED&limit=2", "")
	require.Equal(t, job.BulkQuery{Limit: 2, Result: job.ItemFailed}, w.bulk.query)
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

// Rules that no schema has: what is wrong is said where it is.
func TestFinerRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	const schedules, every = "/v1/schedules", `{"interval":"1m","job":{"type":"EXECUTE"},`
	for _, test := range []struct{ method, path, body, pointer string }{
		{"POST", "/v1/bulk", `{"action":"retry","filter":{}}`, "/filter"},
		{"POST", "/v1/bulk", `{"action":"retry","filter":{"all":false}}`, "/filter"},
		{"POST", "/v1/bulk", `{"action":"retry","filter":{"state":null}}`, "/filter"},
		{"POST", "/v1/bulk", `{"action":"retry","filter":{"all":true,"state":"FAILED"}}`, "/filter/all"},
		{"POST", schedules, every + `"jitter":"2h"}`, "/jitter"}, {"POST", schedules, `{"cron":"* * * *","job":{"type":"EXECUTE"}}`, "/cron"},
		{"POST", schedules, `{"cron":"* * * * *","time_zone":"X","job":{"type":"EXECUTE"}}`, "/time_zone"},
		{"POST", schedules, `{"cron":"TZ=UTC * * * * *","job":{"type":"EXECUTE"}}`, "/cron"},
		{"POST", schedules, `{"interval":"999ms","job":{"type":"EXECUTE"}}`, "/interval"},
		{"POST", schedules, `{"interval":"9999h","job":{"type":"EXECUTE"}}`, "/interval"},
		{"POST", schedules, `{"interval":"1m","job":{"type":"EXECUTE","work_kind":"X"}}`, "/job/work_kind"},
		{"POST", schedules, `{"interval":"1m","job":{"type":"EXECUTE","callback":"x"}}`, "/job/callback"},
		{"POST", schedules, `{"interval":"1m","job":{"type":"EXECUTE","idempotency_key":"x"}}`, "/job/idempotency_key"},
		{"PATCH", schedules + "/" + scheduleID.String(), `{}`, ""},
		{"PATCH", schedules + "/" + scheduleID.String(), `{"paused":true}`, "/paused"},
		{"POST", webhookSelf + "/replay", `{"since":"2030-01-31T13:00:00+01:00"}`, "/since"},
		{"POST", webhookSelf + "/redeliver", `{"since":"2030-02-30T00:00:00Z"}`, "/since"},
		{"POST", webhookSelf + "/redeliver", `{"since":"2030-01-31T12:00:00Z","x":1}`, "/x"},
		{"PUT", faultsPath, `[{}]`, "/0/effect"}, {"PUT", faultsPath, `[{"effect":{"status":503,"code":"RFA_INTERNAL"}}]`, "/0/effect/status"},
		{"PUT", faultsPath, `[{"effect":{"code":"RFA_NONE"}}]`, "/0/effect/code"},
		{"PUT", faultsPath, `[{"effect":{"delay":"61s"}}]`, "/0/effect/delay"},
		{"PUT", faultsPath, `[{"effect":{"close":"before","status":503}}]`, "/0/effect/close"},
		{"PUT", faultsPath, `[{"effect":{"to_other_host":true}}]`, "/0/effect/to_other_host"},
		{"PUT", faultsPath, `[{"effect":{"html":true,"code":"RFA_INTERNAL"}}]`, "/0/effect/html"},
		{"PUT", faultsPath, `[{"effect":{"moved":308,"status":503}}]`, "/0/effect/moved"},
		{"PUT", faultsPath, `[{"effect":{"moved":308,"code":"RFA_INTERNAL"}}]`, "/0/effect/moved"},
		{"PUT", faultsPath, `[{"effect":{"moved":308,"html":true}}]`, "/0/effect/moved"},
		{"PUT", faultsPath, `[{"effect":{"content_type":"a\nb"}}]`, "/0/effect/content_type"},
		{"PUT", faultsPath, `[{"effect":{"next_request":"never","refuse":"1s"}}]`, "/0/effect/next_request"},
		{"PUT", faultsPath, `[{"effect":{"reset":true}}]`, "/0/effect/reset"},
		{"PUT", faultsPath, `[{"effect":{"refuse":"11s"}}]`, "/0/effect/refuse"},
		{"PUT", faultsPath, `[{"match":{"nth":1,"every":2},"effect":{"status":503}}]`, "/0/match"},
		{"PUT", faultsPath, `[{"effect":{"status":503}},{"match":{"operation":"submit"},"effect":{"status":503}}]`, "/1/match/operation"},
		{"PUT", faultsPath, `[{"match":{"from":"2030-01-02T00:00:00Z","until":"2030-01-01T00:00:00Z"},"effect":{"status":503}}]`,
			"/0/match/until"},
		{"PUT", faultsPath, `[{"match":{"operation":"delivery"},"effect":{"status":503}}]`, "/0/effect"},
	} {
		w.testbed.rules, w.bulk.begun = []fault.Counted{{}}, nil
		p := w.send(test.method, test.path, test.body).problem(t)
		require.Equal(t, 400, p.Status, test)
		require.Equal(t, test.pointer, p.Violations[0].Pointer, test)
		require.Len(t, w.testbed.rules, 1, "nothing has changed")
		require.Empty(t, w.bulk.begun)
	}
}

func TestScheduleIsChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	path := "/v1/schedules/" + scheduleID.String()
	w.send("POST", path+"/pause", "")
	w.send("POST", path+"/resume", "")
	require.Equal(t, []bool{true, false}, w.schedules.paused)
	a := w.send("PATCH", path, `{"cron":null,"time_zone":null,"interval":"1h","end_at":"2031-01-01T00:00:00Z"}`,
		"Content-Type", "application/merge-patch+json")
	require.Equal(t, 200, a.StatusCode, a.text)
	p := w.schedules.changed[0]
	require.True(t, p.Times)
	require.Equal(t, []any{"", "", time.Hour}, []any{*p.Cron, *p.TimeZone, *p.Interval})
	w.send("PATCH", path, `{"name":null}`)
	require.False(t, w.schedules.changed[1].Times)
	w.send("GET", "/v1/schedules?limit=7", "")
	require.Equal(t, job.ScheduleQuery{Limit: 7}, w.schedules.query)
}
