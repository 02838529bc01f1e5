package queue

import (
	"testing"

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

func TestParseTaskIsStrict(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", ":", "::", someID, someID + ":1", someID + ":1:", someID + "::0", someID + ":0:0", someID + ":1:-1",
		someID + ":01:0", someID + ":+1:0", someID + ":1:0:0", someID + ":1:0 ", " " + someID + ":1:0", someID + ":1:00",
		someID + ":99999999999999999999:0", "0190F3A4-7D6E-7C55-8A2B-3D1F5E6A7B8C:1:0",
		"00000000-0000-0000-0000-000000000000:1:0", "x:1:0", `{"job_id":"` + someID + `","attempt":1}`,
	} {
		_, err := ParseTask(name)
		require.ErrorIs(t, err, ErrBadPayload, name)
	}
}

func FuzzParseTask(f *testing.F) {
	f.Add(someID + ":1:0")
	f.Add("::")
	f.Fuzz(func(t *testing.T, name string) {
		task, err := ParseTask(name)
		if err == nil {
			require.Equal(t, name, TaskName(task))
		}
	})
}
