package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client whose clock is a little behind asks for a moment that has passed.
func TestDeferredJobOfAMomentAgo(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	s.startWorker()
	u := s.newUser(api)
	u.trySubmit(api, deferred(-1100*time.Millisecond)).requireProblem(t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
	require.Zero(t, s.count(`SELECT count(*) FROM jobs`))

	var given time.Time
	var id string
	eventually(t, "the request arrives within the second", func() bool {
		given = time.Now().Add(-200 * time.Millisecond).UTC().Truncate(time.Microsecond)
		a := u.trySubmit(api, `{"type":"DEFERRED","work_kind":"SCHEDULED_ON_TIME","execution_at":"`+given.Format(time.RFC3339Nano)+`"}`)
		id = a.text("job_id")
		return a.status == http.StatusAccepted
	})
	batch := ""
	eventually(t, "the batch arrives within the second", func() bool {
		a := u.call(api, "POST", "/v1/jobs/batch", `{"jobs":[`+deferred(-200*time.Millisecond)+`,`+deferred(-2*time.Second)+`]}`)
		if a.status == http.StatusAccepted && s.count(`SELECT count(*) FROM jobs WHERE batch_id = $1`, a.text("batch_id")) == 1 {
			batch = a.text("batch_id")
		}
		return batch != ""
	})
	s.await("SUCCEEDED", id)
	a := u.get(api, id)
	shown, err := time.Parse(time.RFC3339Nano, a.text("execution_at"))
	require.NoError(t, err)
	require.True(t, shown.Equal(given), "%s was given: %s", given, a.body)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM jobs WHERE job_id = $1 AND run_at = created_at AND started_at >= created_at`, id))
	require.EqualValues(t, 1, u.awaitBatch(api, batch).value("counts.succeeded"), "the other item is older than that")
	s.checkInvariants()
}
