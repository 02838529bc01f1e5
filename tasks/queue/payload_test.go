package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redistest"
)

const someID = "0190f3a4-7d6e-7c55-8a2b-3d1f5e6a7b8c"

func taskOf(t testing.TB, attempt, dispatch int) job.Task {
	t.Helper()
	id := redistest.Must(job.ParseID(someID))(t)
	return job.Task{JobID: id, Attempt: attempt, Dispatch: dispatch}
}

func TestPayload(t *testing.T) {
	t.Parallel()
	task := taskOf(t, 12, 3)
	require.Equal(t, someID+":12:3", TaskName(task))
	task.ClientID, task.WorkKind, task.Reason, task.RunAt, task.TraceParent = task.JobID, "SUCCESS_FAST", job.TimedOut, time.Now(), "x"
	payload := string(payloadOf(task))
	require.JSONEq(t, `{"job":"`+someID+`","attempt":12,"dispatch":3,"kind":"SUCCESS_FAST","client":"`+someID+`",
		"reason":"`+string(job.TimedOut)+`"}`, payload)
	want := taskOf(t, 12, 3)
	want.WorkKind = "SUCCESS_FAST"
	for _, p := range []string{payload, `{"job":"` + someID + `","attempt":12,"dispatch":3,"kind":"SUCCESS_FAST","more":[]}`} {
		parsed := redistest.Must(ParseTask(p))(t)
		require.Equal(t, want, parsed)
	}
}

func TestParseTaskIsStrict(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		"", someID + ":1:0", `{"job_id":"` + someID + `","attempt":1}`, `{"job":"0190F3A4-7D6E-7C55-8A2B-3D1F5E6A7B8C","attempt":1}`,
		`{"job":"00000000-0000-0000-0000-000000000000","attempt":1}`, `{"job":"` + someID + `"}`, `{"job":"` + someID + `","attempt":"1"}`,
		`{"job":"` + someID + `","attempt":1} x`, `{"job":"` + someID + `","attempt":1,"dispatch":-1}`, `{"job":"x","attempt":1}`, `{`, `{}`,
		`{"job":"` + someID + `","attempt":99999999999999999999}`,
	} {
		_, err := ParseTask(payload)
		require.ErrorIs(t, err, ErrBadPayload, payload)
	}
}

func FuzzParseTask(f *testing.F) {
	f.Add(`{"job":"` + someID + `","attempt":1}`)
	f.Add(someID + ":1:0")
	f.Fuzz(func(t *testing.T, payload string) {
		task, err := ParseTask(payload)
		if err == nil {
			again := redistest.Must(ParseTask(string(payloadOf(task))))(t)
			require.Equal(t, task, again)
		}
	})
}
