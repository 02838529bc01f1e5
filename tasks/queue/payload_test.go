package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

const someID = "0190f3a4-7d6e-7c55-8a2b-3d1f5e6a7b8c"

func TestTaskName(t *testing.T) {
	t.Parallel()
	id, err := job.ParseID(someID)
	require.NoError(t, err)
	task := job.Task{JobID: id, Attempt: 12, Dispatch: 3}
	require.Equal(t, someID+":12:3", TaskName(task))
	parsed, err := ParseTask(TaskName(task))
	require.NoError(t, err)
	require.Equal(t, task, parsed)
}

func TestPayload(t *testing.T) {
	t.Parallel()
	id, err := job.ParseID(someID)
	require.NoError(t, err)
	task := job.Task{
		JobID: id, Attempt: 12, Dispatch: 3, ClientID: id, WorkKind: "SUCCESS_FAST", Reason: job.TimedOut,
		RunAt: time.Now(), TraceParent: "x",
	}
	payload := string(payloadOf(task, false))
	require.JSONEq(t, `{"job":"`+someID+`","attempt":12,"dispatch":3,"kind":"SUCCESS_FAST","client":"`+someID+`",
		"reason":"`+string(job.TimedOut)+`"}`, payload)
	for _, p := range []string{payload, string(payloadOf(task, true)), `{"job":"` + someID + `","attempt":12,"dispatch":3,"more":[]}`} {
		parsed, err := ParseTask(p)
		require.NoError(t, err)
		want := job.Task{JobID: id, Attempt: 12, Dispatch: 3}
		if p == payload {
			want.WorkKind = "SUCCESS_FAST"
		}
		require.Equal(t, want, parsed)
	}
}

func TestParseTaskIsStrict(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", ":", "::", someID, someID + ":1", someID + ":1:", someID + "::0", someID + ":0:0", someID + ":1:-1",
		someID + ":01:0", someID + ":+1:0", someID + ":1:0:0", someID + ":1:0 ", " " + someID + ":1:0", someID + ":1:00",
		someID + ":99999999999999999999:0", "0190F3A4-7D6E-7C55-8A2B-3D1F5E6A7B8C:1:0",
		"00000000-0000-0000-0000-000000000000:1:0", "x:1:0", `{"job_id":"` + someID + `","attempt":1}`,
		`{"job":"` + someID + `"}`, `{"job":"` + someID + `","attempt":"1"}`, `{"job":"` + someID + `","attempt":1} ` + "x",
		`{"job":"` + someID + `","attempt":1,"dispatch":-1}`, `{"job":"x","attempt":1}`, `{`, `{}`, ` {"job":"` + someID + `","attempt":1}`,
	} {
		_, err := ParseTask(name)
		require.ErrorIs(t, err, ErrBadPayload, name)
	}
}

func FuzzParseTask(f *testing.F) {
	f.Add(someID + ":1:0")
	f.Add("::")
	f.Add(`{"job":"` + someID + `","attempt":1}`)
	f.Fuzz(func(t *testing.T, name string) {
		task, err := ParseTask(name)
		if err == nil {
			again, err := ParseTask(TaskName(task))
			require.NoError(t, err)
			require.Equal(t, task, again)
			require.True(t, name == TaskName(task) || name[0] == '{')
		}
	})
}
