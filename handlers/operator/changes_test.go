package operator_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestEraseAClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := "/admin/v1/clients/" + anID.String() + "/erase"
	for _, body := range []string{
		``, `{}`, `{"confirm":""}`, `{"confirm":"` + anID.String() + `","reason":"a\nb"}`,
		`{"confirm":"0190a1b2-c3d4-7000-8000-0000000000e1"}`,
		`{"confirm":"` + anID.String() + `","more":1}`,
		`{"confirm":"` + anID.String() + `","reason":"` + strings.Repeat("x", 1001) + `"}`,
	} {
		require.Equal(t, http.StatusBadRequest, w.post(target, body).StatusCode, body)
	}
	require.Empty(t, w.store.done)
	r := w.post(target, `{"confirm":"`+anID.String()+`","reason":"asked for"}`,
		"X-Request-Id", "0190a1b2-c3d4-7000-8000-000000000b01")
	require.Equal(t, http.StatusAccepted, r.StatusCode, r.text)
	require.Equal(t, "/admin/v1/erasures/"+anID.String(), r.Header.Get("Location"))
	require.JSONEq(t, `{"erasure_id":"`+anID.String()+`","client_id":"`+anID.String()+`","state":"RUNNING"}`, r.text)
	require.Equal(t, job.ErasureRequest{
		ClientID: anID, Operator: "ann", Reason: "asked for", RequestID: "0190a1b2-c3d4-7000-8000-000000000b01",
	}, w.store.erasure)
	require.JSONEq(t, `{"confirmed":true,"reason":"asked for"}`, string(w.store.entries[len(w.store.entries)-1].Detail))
	require.Equal(t, http.StatusNotFound, w.post("/admin/v1/clients/x/erase", `{"confirm":"`+anID.String()+`"}`).StatusCode)
}

// The hash is of the record as it stands in the answer.
func TestErasuresTellTheirProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var e struct {
		State string
		Proof struct {
			Remaining map[string]int
			Record    json.RawMessage
			SHA256    string `json:"sha256"`
		}
	}
	w.get("/admin/v1/erasures/"+anID.String()).json(t, &e)
	require.Equal(t, "DONE", e.State)
	require.Len(t, e.Proof.Remaining, len(job.ErasedTables))
	sum := sha256.Sum256(e.Proof.Record)
	require.Equal(t, hex.EncodeToString(sum[:]), e.Proof.SHA256)

	w.store.nexts = []job.ID{anID}
	list := w.get("/admin/v1/erasures?limit=2")
	var page struct {
		Data []struct {
			State string
			Proof *struct{}
		}
	}
	list.json(t, &page)
	require.Equal(t, "RUNNING", page.Data[0].State)
	require.Nil(t, page.Data[0].Proof)
	require.NotNil(t, page.Data[1].Proof)
	require.Equal(t, 2, w.store.erasuresLimit)
	w.get("/admin/v1/erasures?limit=2&cursor=" + list.cursor(t))
	require.Equal(t, anID, w.store.erasuresAfter)
}

// A name is a line, and none removes it.
func TestNameAClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := "/admin/v1/clients/" + anID.String() + "/name"
	for body, status := range map[string]int{
		`{"name":"Billing"}`: 200, `{"name":""}`: 200, ``: 400, `{"name":null}`: 400, `{"name":"two\nlines"}`: 400,
		`{"name":"` + strings.Repeat("x", 101) + `"}`: 400,
	} {
		require.Equal(t, status, w.post(name, body).StatusCode, "%.20s", body)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	const target = "/admin/v1/pauses"
	w := newWorld(t)
	of := func(members string) string { return `{` + members + `,"reason":"r"}` }
	because := func(reason string) string { return `{"scope":"ALL","reason":"` + reason + `"}` }
	id := anID.String()
	for pointer, bodies := range map[string][]string{
		"/scope": {`{"reason":"r"}`, of(`"scope":"QUEUE"`)},
		"/target": {of(`"scope":"ALL","target":"x"`), of(`"scope":"KIND"`), of(`"scope":"KIND","target":"NOTHING"`),
			of(`"scope":"CLIENT","target":"x"`), of(`"scope":"WORKER","target":"00000000-0000-0000-0000-000000000000"`)},
		"/mode":   {of(`"scope":"WORKER","target":"` + id + `","mode":"PAUSE"`), of(`"scope":"ALL","mode":"STOP"`)},
		"/reason": {`{"scope":"ALL"}`, because(" "), because(`a\nb`), because(strings.Repeat("x", 1001))},
	} {
		for _, body := range bodies {
			r := w.post(target, body)
			require.Equal(t, http.StatusBadRequest, r.StatusCode, body)
			require.Contains(t, r.text, `"pointer":"`+pointer+`"`, body)
		}
	}
	require.Empty(t, w.store.paused)

	for body, want := range map[string]job.Pause{
		of(`"scope":"ALL"`): {Scope: job.PauseAll, Mode: job.ModePause},
		of(`"scope":"KIND","target":"SUCCESS_FAST","mode":"DRAIN"`): {Scope: job.PauseKind, Target: "SUCCESS_FAST", Mode: job.ModeDrain},
		of(`"scope":"CLIENT","target":"` + id + `"`):                {Scope: job.PauseClient, Target: id, Mode: job.ModePause},
		of(`"scope":"WORKER","target":"` + id + `"`):                {Scope: job.PauseWorker, Target: id, Mode: job.ModeDrain},
	} {
		w := newWorld(t)
		want.Operator, want.Reason = "ann", "r"
		r := w.post(target, body)
		require.Equal(t, http.StatusCreated, r.StatusCode, r.text)
		require.Equal(t, job.Pauses{want}, w.store.paused)
		require.Equal(t, http.StatusOK, w.post(target, body).StatusCode, "it was there already")
		entry := w.store.entries[len(w.store.entries)-1]
		require.Equal(t, "pause", entry.Action)
		require.Contains(t, string(entry.Detail), want.Reason)
	}

	require.Equal(t, http.StatusNoContent, w.send(changeToken, "DELETE", target+"/"+anID.String(), "").StatusCode)
	require.Equal(t, "resume "+anID.String(), w.store.done[len(w.store.done)-1])
	require.Equal(t, http.StatusNotFound, w.send(changeToken, "DELETE", target+"/x", "").StatusCode)
	require.Contains(t, w.get(target).text, `"scope":"KIND","target":"SUCCESS_FAST","mode":"DRAIN"`)
	require.Contains(t, w.get(target).text, `"scope":"ALL","target":null,"mode":"PAUSE"`)
}

// schedules has one, and notes in done what is done to it.
type schedules struct{ s *store }

func aSchedule(id job.ID, paused bool) *job.Schedule {
	due := time.Date(2030, 1, 2, 4, 30, 0, 0, time.UTC)
	s := &job.Schedule{
		ID: id, ClientID: anID, Timetable: job.Timetable{Cron: "30 4 * * *"}, Overlap: job.OverlapSkip, CatchUp: job.CatchUpLast, Paused: paused,
		Job:              job.ScheduledJob{Type: job.Execute, Params: []byte(`{"password":"x"}`)},
		ScheduleProgress: job.ScheduleProgress{DueAt: &due, Missed: 2, LastError: &job.ScheduleError{Code: job.CodeQueueFull, Detail: "Full."}},
	}
	if paused {
		s.DueAt = nil
	}
	return s
}

func (f schedules) Schedule(_ context.Context, client, id job.ID) (*job.Schedule, error) {
	if !client.IsZero() {
		panic("operators see those of all clients")
	}
	return aSchedule(id, false), f.s.find(id)
}

func (f schedules) Schedules(_ context.Context, client job.ID, _ job.ScheduleQuery) ([]*job.Schedule, job.ID, error) {
	listed := aSchedule(anID, false)
	listed.LastJobID = client // to show whose were asked for
	return []*job.Schedule{listed}, anID, f.s.err
}

func (schedules) Change(context.Context, job.ID, job.ID, job.SchedulePatch) (*job.Schedule, error) {
	panic("operators change none")
}

func (f schedules) SetPaused(_ context.Context, client, id job.ID, paused bool) (*job.Schedule, error) {
	if !client.IsZero() {
		panic("operators pause those of all clients")
	}
	if err := f.s.find(id); err != nil {
		return nil, err
	}
	f.s.done = append(f.s.done, "pause schedule")
	return aSchedule(id, paused), nil
}

func (f schedules) Create(_ context.Context, r job.ScheduleRequest) (*job.Schedule, error) {
	if len(r.Violations) > 0 {
		return nil, r.Refusal(r.Violations)
	}
	f.s.done = append(f.s.done, "create schedule of "+r.Job.ClientID.String())
	created := aSchedule(anID, false)
	created.ClientID, created.Timetable = r.Schedule.ClientID, r.Schedule.Timetable
	return created, f.s.err
}

func (f schedules) Delete(_ context.Context, client, _ job.ID) error {
	f.s.done = append(f.s.done, "delete schedule of "+client.String())
	return f.s.err
}

func (f schedules) Trigger(_ context.Context, client, id job.ID, now time.Time, _ string) (*job.Job, error) {
	if !client.IsZero() {
		panic("operators trigger those of all clients")
	}
	if err := f.s.find(id); err != nil {
		return nil, err
	}
	f.s.done = append(f.s.done, "trigger schedule")
	return &job.Job{ID: id, CreatedAt: now}, nil
}

// Operators create, trigger and delete schedules of clients, and each change is in the audit log.
func TestScheduleChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := func(schedule string) string {
		return `{"client_id":"` + anID.String() + `","schedule":` + schedule + `}`
	}
	good := body(`{"cron":"0 4 * * *","job":{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}}`)
	made := w.post("/admin/v1/schedules", good)
	require.Equal(t, http.StatusCreated, made.StatusCode, made.text)
	require.Contains(t, made.text, `"cron":"0 4 * * *"`)
	wrong := w.post("/admin/v1/schedules", body(`{"cron":"never","job":{"type":"EXECUTE"}}`))
	require.Equal(t, http.StatusBadRequest, wrong.StatusCode)
	require.Contains(t, wrong.text, `"pointer":"/schedule/cron"`)

	at := "/admin/v1/schedules/" + anID.String()
	triggered := w.send(changeToken, "POST", at+"/trigger", "")
	require.Equal(t, http.StatusAccepted, triggered.StatusCode, triggered.text)
	require.Contains(t, triggered.text, `"job_id":"`+anID.String()+`","state":"QUEUED"`)
	require.Equal(t, http.StatusNoContent, w.send(changeToken, "DELETE", at, "").StatusCode)
	require.Equal(t, []string{"create schedule of " + anID.String(), "trigger schedule", "delete schedule of " + anID.String()}, w.store.done)
	for i, action := range []string{"create_schedule", "create_schedule", "trigger_schedule", "delete_schedule"} {
		require.Equal(t, action, w.store.entries[i].Action)
	}
	for _, path := range []string{"", "/" + anID.String() + "/trigger"} {
		require.Equal(t, http.StatusForbidden, w.send(readToken, "POST", "/admin/v1/schedules"+path, good).StatusCode)
	}
	require.Equal(t, http.StatusForbidden, w.send(readToken, "DELETE", at, "").StatusCode)
	w.store.err = job.Errorf(job.CodeScheduleMissing, "Gone.")
	require.Equal(t, http.StatusNotFound, w.send(changeToken, "DELETE", at, "").StatusCode)
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := w.get("/admin/v1/schedules?client_id=" + anID.String())
	require.Equal(t, 200, list.StatusCode, list.text)
	require.Contains(t, list.text, `"last_job_id":"`+anID.String()+`"`)
	require.Contains(t, list.text, `"next_runs":["2030-01-02T04:30:00.000000Z","2030-01-03T04:30:00.000000Z"`)
	require.NotContains(t, list.text, "password", "what clients send is not shown")
	paused := w.send(changeToken, "POST", "/admin/v1/schedules/"+anID.String()+"/pause", "")
	require.Contains(t, paused.text, `"state":"PAUSED"`)
	require.Contains(t, paused.text, `"next_runs":[]`)
	require.Contains(t, w.send(changeToken, "POST", "/admin/v1/schedules/"+anID.String()+"/resume", "").text, `"state":"ACTIVE"`)
	require.Len(t, w.store.entries, 2, "each is in the audit log")
	require.Equal(t, "resume_schedule", w.store.entries[1].Action)
	require.Equal(t, "schedule", w.store.entries[1].TargetType)
}
