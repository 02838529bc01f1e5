package handlers

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

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
	}
	return s, err
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
		of(`"interval":"1.0000001s"`): "/interval",
		of(`"interval":60`):           "/interval", of(`"cron":"* * * *"`): "/cron", of(`"cron":"TZ=UTC * * * * *"`): "/cron",
		of(`"cron":"* * * * *","time_zone":"X"`): "/time_zone", more(`"jitter":"2h"`): "/jitter", more(`"overlap":"x"`): "/overlap",
		more(`"catch_up":"x"`): "/catch_up", more(`"catch_up_max":1001`): "/catch_up_max", more(`"start_at":"x"`): "/start_at",
		more(`"name":"a\nb"`): "/name", more(`"schedule":1`): "/schedule",
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
