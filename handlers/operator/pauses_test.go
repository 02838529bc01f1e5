package operator_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	const target = "/admin/v1/pauses"
	w := newWorld(t)
	for body, pointer := range map[string]string{
		`{"reason":"r"}`: "/scope", `{"scope":"QUEUE","reason":"r"}`: "/scope",
		`{"scope":"ALL","target":"x","reason":"r"}`:                                       "/target",
		`{"scope":"KIND","reason":"r"}`:                                                   "/target",
		`{"scope":"KIND","target":"NOTHING","reason":"r"}`:                                "/target",
		`{"scope":"CLIENT","target":"x","reason":"r"}`:                                    "/target",
		`{"scope":"WORKER","target":"00000000-0000-0000-0000-000000000000","reason":"r"}`: "/target",
		`{"scope":"WORKER","target":"` + anID.String() + `","mode":"PAUSE","reason":"r"}`: "/mode",
		`{"scope":"ALL","mode":"STOP","reason":"r"}`:                                      "/mode",
		`{"scope":"ALL"}`:                                              "/reason",
		`{"scope":"ALL","reason":" "}`:                                 "/reason",
		`{"scope":"ALL","reason":"a\nb"}`:                              "/reason",
		`{"scope":"ALL","reason":"` + strings.Repeat("x", 1001) + `"}`: "/reason",
	} {
		r := w.send(changeToken, "POST", target, body)
		require.Equal(t, http.StatusBadRequest, r.StatusCode, body)
		require.Contains(t, r.text, `"pointer":"`+pointer+`"`, body)
	}
	require.Equal(t, http.StatusForbidden, w.send(readToken, "POST", target, `{"scope":"ALL","reason":"r"}`).StatusCode)
	require.Empty(t, w.store.paused)

	for body, want := range map[string]job.Pause{
		`{"scope":"ALL","reason":"a release"}`: {Scope: job.PauseAll, Mode: job.ModePause, Reason: "a release"},
		`{"scope":"KIND","target":"SUCCESS_FAST","mode":"DRAIN","reason":"r"}`: {
			Scope: job.PauseKind, Target: "SUCCESS_FAST", Mode: job.ModeDrain, Reason: "r",
		},
		`{"scope":"CLIENT","target":"` + anID.String() + `","reason":"r"}`: {
			Scope: job.PauseClient, Target: anID.String(), Mode: job.ModePause, Reason: "r",
		},
		`{"scope":"WORKER","target":"` + anID.String() + `","reason":"r"}`: {
			Scope: job.PauseWorker, Target: anID.String(), Mode: job.ModeDrain, Reason: "r",
		},
	} {
		w := newWorld(t)
		want.Operator = "ann"
		r := w.send(changeToken, "POST", target, body)
		require.Equal(t, http.StatusCreated, r.StatusCode, r.text)
		require.Equal(t, job.Pauses{want}, w.store.paused)
		require.Equal(t, http.StatusOK, w.send(changeToken, "POST", target, body).StatusCode, "it was there already")
		entry := w.store.entries[len(w.store.entries)-1]
		require.Equal(t, "pause", entry.Action)
		require.Contains(t, string(entry.Detail), want.Reason)
	}

	require.Equal(t, http.StatusNoContent, w.send(changeToken, "DELETE", target+"/"+anID.String(), "").StatusCode)
	require.Equal(t, "resume "+anID.String(), w.store.done[len(w.store.done)-1])
	require.Equal(t, http.StatusNotFound, w.send(changeToken, "DELETE", target+"/x", "").StatusCode)
	require.Equal(t, http.StatusForbidden, w.send(readToken, "DELETE", target+"/"+anID.String(), "").StatusCode)
	require.Contains(t, w.get(target).text, `"scope":"KIND","target":"SUCCESS_FAST","mode":"DRAIN"`)
	require.Contains(t, w.get(target).text, `"scope":"ALL","target":null,"mode":"PAUSE"`)
}
