package apptest

import (
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// logged asserts that a transition was logged once, with the fields of section
// 16 and of the scenario.
func (w *World) Logged(task job.Task, action, from, to string) map[string]any {
	w.T.Helper()
	lines := w.Log.Lines(w.T, map[string]any{
		"msg": "job transition", "action": action, "job_id": task.JobID.String(), "current_state": from, "next_state": to,
	})
	require.Len(w.T, lines, 1)
	require.Equal(w.T, "request-1", lines[0]["request_id"])
	require.Equal(w.T, ClientA.String(), lines[0]["client_id"])
	for _, field := range []string{"work_kind", "duration_ms", "expected_outcome"} {
		require.Contains(w.T, lines[0], field)
	}
	return lines[0]
}
