package tasks

import (
	"errors"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/job"
)

// taskType is the asynq type of a task that points at a job.
const taskType = "job"

var errBadPayload = errors.New("not a payload that this queue has")

// taskName is a task's id in asynq and its payload as well:
// "{job_id}:{attempt}:{dispatch}". One hand-over has one name, so handing it
// over twice is noticed.
func taskName(t job.Task) string {
	b := make([]byte, 0, 48)
	b = append(b, t.JobID.String()...)
	b = append(b, ':')
	b = strconv.AppendInt(b, int64(t.Attempt), 10)
	b = append(b, ':')
	return string(strconv.AppendInt(b, int64(t.Dispatch), 10))
}

// parseTask reads a task's name, in exactly the spelling that taskName gives
// it. Attempts count from 1, dispatches from 0.
func parseTask(name string) (job.Task, error) {
	id, numbers, ok := strings.Cut(name, ":")
	attempt, dispatch, ok2 := strings.Cut(numbers, ":")
	if !ok || !ok2 {
		return job.Task{}, errBadPayload
	}
	var t job.Task
	var err1, err2, err3 error
	t.JobID, err1 = job.ParseID(id)
	t.Attempt, err2 = strconv.Atoi(attempt)
	t.Dispatch, err3 = strconv.Atoi(dispatch)
	if err1 != nil || err2 != nil || err3 != nil || t.JobID.IsZero() || t.Attempt < 1 || t.Dispatch < 0 || taskName(t) != name {
		return job.Task{}, errBadPayload
	}
	return t, nil
}
