package operator_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestEraseAClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	anID := backend.ClientA
	target := "/admin/v1/clients/" + anID.String() + "/erase"
	require.Equal(t, http.StatusBadRequest, w.post(target, `{"confirm":"0190a1b2-c3d4-7000-8000-0000000000e1"}`).StatusCode)
	require.Equal(t, 1, repotest.Count(t, w.URL(), "erasures"))
	r := w.post(target, `{"confirm":"`+anID.String()+`","reason":"asked for"}`,
		"X-Request-Id", "0190a1b2-c3d4-7000-8000-000000000b01").requireStatus(t, http.StatusAccepted)
	require.Contains(t, r.text, `"client_id":"`+anID.String()+`","state":"PENDING"}`)
	shown := w.get(r.Header.Get("Location")).text
	for _, part := range []string{`"operator":"ann"`, `"reason":"asked for"`, `"request_id":"0190a1b2-c3d4-7000-8000-000000000b01"`} {
		require.Contains(t, shown, part)
	}
	require.JSONEq(t, `{"confirmed":true,"reason":"asked for"}`, string(w.audit()[0].Detail))
	require.Equal(t, http.StatusNotFound, w.post("/admin/v1/clients/x/erase", `{"confirm":"`+anID.String()+`"}`).StatusCode)
}

// The hash is computed over the record exactly as the response shows it.
func TestErasuresHaveProof(t *testing.T) {
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
	path := "/admin/v1/erasures/" + backend.Erasure.String()
	require.Contains(t, w.get(path).text, `"state":"RUNNING"`)
	require.Contains(t, w.get(path).text, `"proof":null`)
	done := &job.Erasure{ID: backend.Erasure, ClientID: backend.ErasedClient, Operator: "ann", Reason: "<a> & \"ü\""}
	require.NoError(t, done.Finish(time.Now()))
	w.Exec(`UPDATE erasures SET finished_at = now(), step = 'done', record = $1, record_sha256 = $2, remaining = $3`, done.Record, done.SHA256,
		done.Remaining)
	w.get(path).json(t, &e)
	require.Equal(t, "DONE", e.State)
	require.Len(t, e.Proof.Remaining, len(job.ErasedTables))
	sum := sha256.Sum256(e.Proof.Record)
	require.Equal(t, hex.EncodeToString(sum[:]), e.Proof.SHA256)
	require.Contains(t, w.get("/admin/v1/erasures?limit=2").text, `"sha256":"`+e.Proof.SHA256)
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	const target = "/admin/v1/pauses"
	w := newWorld(t)
	of := func(members string) string { return `{` + members + `,"reason":"r"}` }
	id := anID.String()
	for pointer, bodies := range map[string][]string{
		"/target": {of(`"scope":"ALL","target":"x"`), of(`"scope":"KIND"`), of(`"scope":"KIND","target":"NOTHING"`),
			of(`"scope":"CLIENT","target":"x"`), of(`"scope":"WORKER","target":"00000000-0000-0000-0000-000000000000"`)},
		"/mode":   {of(`"scope":"WORKER","target":"` + id + `","mode":"PAUSE"`)},
		"/reason": {`{"scope":"ALL","reason":" "}`},
	} {
		for _, body := range bodies {
			r := w.post(target, body)
			require.Equal(t, http.StatusBadRequest, r.StatusCode, body)
			require.Contains(t, r.text, `"pointer":"`+pointer+`"`, body)
		}
	}
	require.Equal(t, 1, repotest.Count(t, w.URL(), "pauses"))

	client, worker := backend.ClientA.String(), backend.Worker.String()
	for body, want := range map[string]string{
		of(`"scope":"ALL"`): `"scope":"ALL","target":null,"mode":"PAUSE"`,
		of(`"scope":"KIND","target":"SUCCESS_FAST","mode":"DRAIN"`): `"scope":"KIND","target":"SUCCESS_FAST","mode":"DRAIN"`,
		of(`"scope":"CLIENT","target":"` + client + `"`):            `"scope":"CLIENT","target":"` + client + `","mode":"PAUSE"`,
		of(`"scope":"WORKER","target":"` + worker + `"`):            `"scope":"WORKER","target":"` + worker + `","mode":"DRAIN"`,
	} {
		r := w.post(target, body).requireStatus(t, http.StatusCreated)
		require.Contains(t, r.text, want+`,"operator":"ann","reason":"r"`)
		require.Equal(t, http.StatusOK, w.post(target, body).StatusCode, "the pause already exists")
		require.Contains(t, w.get(target).text, want)
		require.Contains(t, string(w.audit()[0].Detail), `"reason": "r"`)
	}
	require.Equal(t, http.StatusNoContent, w.send(changeToken, "DELETE", target+"/"+backend.Pause.String(), "").StatusCode)
	require.NotContains(t, w.get(target).text, "CPU_BURST")
	require.Equal(t, http.StatusNotFound, w.send(changeToken, "DELETE", target+"/x", "").StatusCode)
}

func TestScheduleChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.post("/admin/v1/schedules", ofClient("schedule", `{"cron":"0 4 * * *","job":{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}}`))
	require.Equal(t, http.StatusCreated, made.StatusCode, made.text)
	require.Contains(t, made.text, `"cron":"0 4 * * *"`)
	wrong := w.post("/admin/v1/schedules", ofClient("schedule", `{"cron":"never","job":{"type":"EXECUTE"}}`)).requireStatus(t, 400)
	require.Contains(t, wrong.text, `"pointer":"/schedule/cron"`)

	at := "/admin/v1/schedules/" + backend.Schedule.String()
	triggered := w.post(at+"/trigger", "").requireStatus(t, http.StatusAccepted)
	require.Contains(t, triggered.text, `"job_id":"`+w.Newest().String()+`","state":"QUEUED"`)
	require.Contains(t, w.post(at+"/pause", "").text, `"state":"PAUSED"`)
	require.Contains(t, w.get(at).text, `"next_runs":[]`)
	require.Contains(t, w.post(at+"/resume", "").text, `"state":"ACTIVE"`)
	require.Equal(t, http.StatusNoContent, w.send(changeToken, "DELETE", at, "").StatusCode)
	require.Equal(t, http.StatusNotFound, w.send(changeToken, "DELETE", at, "").StatusCode)
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`UPDATE schedules SET job = $1`, `{"type":"EXECUTE","params":{"password":"x"}}`)
	list := w.get("/admin/v1/schedules?client_id="+backend.ClientA.String()).requireStatus(t, 200)
	require.Contains(t, list.text, `"next_runs":["2030-02-01T03:30:00.000000Z","2030-02-02T03:30:00.000000Z"`)
	require.NotContains(t, list.text, "password", "the params of clients are not shown")
	require.Contains(t, w.get("/admin/v1/schedules?client_id="+backend.ClientB.String()).text, `"data":[]`)
}
